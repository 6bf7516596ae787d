"""What fake-gcs-server lacks of the XML interface of Google Cloud Storage, by its JSON interface.

The server lists and reads by either, and writes by JSON only, while obstore uses XML for all. What is decided by
generations, and the generations themselves, come from the server.
"""

from __future__ import annotations

import itertools
import json
import urllib.parse
from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


Send = Callable[[str, str, dict[str, str], bytes], Answer]


class GcsInterface:
    def __init__(self) -> None:
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._ids = itertools.count(1)

    def send(self, send: Send, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        where, _, query = path.partition("?")
        options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        bucket, _, key = where[1:].partition("/")
        if method in ("GET", "HEAD"):
            answer = send(method, path, headers, body)
            wanted = headers.get("if-match")
            is_refused = wanted is not None and answer.status < 400 and _of(answer, "etag") != wanted
            return answer._replace(status=412, headers=[], body=b"") if is_refused else answer
        if "uploads" in options:
            upload = str(next(self._ids))
            self._uploads[upload] = {}
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>")
        if upload := options.get("uploadId", ""):
            if method == "PUT":
                self._uploads[upload][int(options["partNumber"])] = body
                return _xml("")._replace(headers=[("ETag", f'"{upload}"')])
            parts = self._uploads.pop(upload, {})
            if method == "DELETE":
                return _xml("")
            body = b"".join(data for _, data in sorted(parts.items()))
            done = _insert(send, bucket, key, {}, body)
            return _xml(f"<CompleteMultipartUploadResult><ETag>{_of(done, 'etag')}</ETag>")
        if source := headers.get("x-goog-copy-source"):
            from_bucket, _, from_key = source.lstrip("/").partition("/")
            path = f"/storage/v1/b/{from_bucket}/o/{_name(from_key)}/rewriteTo/b/{bucket}/o/{_name(key)}"
            return send("POST", path, {"content-length": "0"}, b"")
        if method == "PUT":
            return _insert(send, bucket, key, headers, body)
        return send(method, path, headers, body)


def _insert(send: Send, bucket: str, key: str, headers: dict[str, str], body: bytes) -> Answer:
    # The kind of upload whose conditions the server honours.
    path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={_name(key)}"
    if generation := headers.get("x-goog-if-generation-match"):
        path += f"&ifGenerationMatch={generation}"
    kind = "Content-Type: application/octet-stream"
    body = b"".join([b"--=\r\n\r\n{}\r\n--=\r\n", kind.encode(), b"\r\n\r\n", body, b"\r\n--=--\r\n"])
    form = {"content-type": 'multipart/related; boundary="="', "content-length": str(len(body))}
    answer = send("POST", path, form, body)
    if answer.status != 200:
        return answer
    found = json.loads(answer.body)
    return answer._replace(
        headers=[("ETag", f'"{found["etag"]}"'), ("x-goog-generation", found["generation"])], body=b""
    )


def _name(key: str) -> str:
    return urllib.parse.quote(urllib.parse.unquote(key), safe="")


def _of(answer: Answer, header: str) -> str:
    return next((value for name, value in answer.headers if name.lower() == header), "")


def _xml(text: str) -> Answer:
    name = text[1:].partition(">")[0]
    return Answer(200, [], f"{text}</{name}>".encode() if text else b"")
