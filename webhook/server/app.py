"""The WSGI application: reads any HTTP request strictly and passes reviews to the endpoint.

Requests in the API server's own form do not come here (`webhook.server.exchange`).
"""

from __future__ import annotations

from typing import Final

from flask import Flask, request
from flask import Response as HttpResponse
from werkzeug.exceptions import HTTPException

from webhook.admission.review import BadReview
from webhook.server.endpoint import Answer, Endpoint

# WSGI environ, both optional: the monotonic second of the request's first byte; whether to refuse the request.
RECEIVED: Final = "topogate.received"
BUSY: Final = "topogate.busy"


def create_app(endpoint: Endpoint) -> Flask:
    """Return the application with POST /mutate and POST /validate."""
    app = Flask("topogate", static_folder=None)

    def review(path: str) -> HttpResponse:
        environ = request.environ
        return _response(
            endpoint.answer(
                path,
                lambda: _body(endpoint.max_body),
                received=environ.get(RECEIVED, endpoint.clock()),
                timeout=request.args.get("timeout"),
                busy=bool(environ.get(BUSY)),
            )
        )

    @app.post("/mutate", provide_automatic_options=False)
    def _mutate() -> HttpResponse:
        return review("mutate")

    @app.post("/validate", provide_automatic_options=False)
    def _validate() -> HttpResponse:
        return review("validate")

    @app.errorhandler(HTTPException)
    def _http_error(error: HTTPException) -> HttpResponse:
        response = _response(endpoint.refuse("other", error.code or 500, error.name.lower()))
        response.headers.extend((key, value) for key, value in error.get_headers() if key == "Allow")
        return response

    return app


def _body(limit: int) -> bytes:
    """Return the request's body. Raises BadReview if it has no length, is too long, of another type or incomplete."""
    length = request.content_length
    if length is None:
        raise BadReview(411, "Content-Length is required")
    if length > limit:
        raise BadReview(413, f"the body may have {limit} bytes")
    if request.mimetype != "application/json":
        raise BadReview(415, "Content-Type must be application/json")
    try:
        body = request.get_data(cache=False)
    except HTTPException:
        body = b""
    if len(body) != length:
        raise BadReview(400, "the body ended early")
    return body


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status, content_type=answer.content_type)
    if answer.retry:
        response.headers["Retry-After"] = "1"
    return response
