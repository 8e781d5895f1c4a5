import { defineConfig } from "vite";

// Where `npm run dev` finds a gateway.
const gateway = "http://127.0.0.1:8470";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": gateway } },
  build: {
    outDir: "../foliot_gateway/static",
    emptyOutDir: true,
    target: "es2022",
    // The page's Content-Security-Policy allows files of its own, and nothing inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
