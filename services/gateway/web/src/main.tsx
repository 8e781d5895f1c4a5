import { render } from "preact";
import { follow } from "./connection.ts";
import { ears, start } from "./store.ts";
import { tell } from "./story.ts";
import "./style/page.css";
import "./style/header.css";
import "./style/fleet.css";
import "./style/events.css";
import "./style/story.css";
import { Page } from "./views/page.tsx";

start();
tell();
follow(ears);
render(<Page />, document.getElementById("page") as HTMLElement);
