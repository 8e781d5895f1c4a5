"""The live page: files that ``make page`` builds from ``services/gateway/web``.

Where they are missing, a plain page says so.
"""

import mimetypes
from pathlib import Path
from typing import Any

from litestar import Request, Response, get
from litestar.params import FromPath

from foliot_gateway.state.queries import NotFoundError

_FOLDER = Path(__file__).parents[1] / "static"
_GUARD = {
    # Nothing but the page's own files, and no other site may frame it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NOT_BUILT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Foliot</title>
<h1>Foliot</h1>
<p>The gateway runs, but its page was not built. To build it, run in Foliot's directory:</p>
<pre>make page</pre>
<p>and load this page again. What it would show is here meanwhile:
<a href="/api/v1/fleet">fleet</a>, <a href="/api/v1/events">events</a>, <a href="/api/v1/commands">commands</a>,
<a href="/api/v1/traces">traces</a>, <a href="/schema">all addresses</a>.</p>
</html>
"""


@get("/", include_in_schema=False)
async def get_page() -> Response[bytes]:
    """The page. A browser asks for it anew each time, but never for its parts: their names say what they hold."""
    try:
        body = (_FOLDER / "index.html").read_bytes()
    except OSError:
        body = _NOT_BUILT.encode()
    return Response(body, media_type="text/html", headers={**_GUARD, "Cache-Control": "no-cache"})


@get("/assets/{name:str}", include_in_schema=False)
async def get_asset(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """A part of the page."""
    folder = _FOLDER / "assets"
    # Only what lies there is served: a name is compared, never made into a path.
    file = next((each for each in folder.glob("*") if each.name == name), None)
    if file is None:
        raise NotFoundError(f"There is nothing at {request.url.path}; load the page anew if it was built anew.")
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(file.read_bytes(), media_type=media_type, headers={**_GUARD, **kept})
