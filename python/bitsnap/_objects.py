"""Object stores, through obstore, which has the clients of S3, Google Cloud Storage and Azure.

The library in C++ asks for the client of a bucket, and calls it on any of its threads, several at a time. Credentials,
endpoints and regions come from where obstore looks: environment variables, files of the clouds' tools, and the service
of the machine's metadata. They are neither stored nor named in errors.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from bitsnap._bitsnap import run_command
from bitsnap.errors import IoError, NotFoundError, UnsupportedError

_INSTALL = 'pip install "bitsnap[remote]"'
# Parts of an upload: S3 takes 10,000 of them. As many as this are in memory while they are sent.
_PART_BYTES = 32 << 20
_PARTS_AT_ONCE = 4
# Of what reads, and of parts of uploads: to slow services, too.
_RETRY = {"max_retries": 8, "retry_timeout": datetime.timedelta(minutes=3)}
_TIMEOUT = {"connect_timeout": "10s", "timeout": "120s"}
# Of a request that changes an object: with all repetitions within the 40 seconds that bitsnap::ObjectStore demands.
_RETRY_CHANGE = {"max_retries": 8, "retry_timeout": datetime.timedelta(seconds=20)}
_TIMEOUT_CHANGE = {"connect_timeout": "10s", "timeout": "20s"}
# object version = ETag, newline, generation: services use one of them, or both.
_Version = str
_Found = tuple[int, _Version, int]  # bytes, version, modified (nanoseconds since the Unix epoch)


def _version_of(answer: Any) -> _Version:
    return f"{answer['e_tag'] or ''}\n{answer.get('version') or ''}"


def _found(meta: Any) -> _Found:
    return meta["size"], _version_of(meta), round(meta["last_modified"].timestamp() * 1e9)


def _short(error: Exception) -> str:
    """The first sentence of an error of obstore, which goes on with the answer and the structs of the client."""
    text = re.split(r"\n|: <\?xml|\s+Debug source", str(error).strip(), maxsplit=1)[0]
    text = re.sub(r"//[^/@\s]*@", "//", text)  # an endpoint may have a password
    return text.rstrip(": ") or type(error).__name__


class _Service(NamedTuple):
    name: str
    endpoint: str  # variables of the environment, as in what follows
    credentials: str


_SERVICES = {
    "s3": _Service(
        "S3",
        "AWS_ENDPOINT_URL (or AWS_REGION, if it is not set)",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install boto3, which reads profiles",
    ),
    "gs": _Service("Google Cloud Storage", "the proxy", "GOOGLE_APPLICATION_CREDENTIALS"),
    "az": _Service(
        "Azure Blob Storage",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    ),
}
# Where a machine in a cloud asks for the credentials of its role: the last place where obstore looks.
_ASKS_THE_MACHINE = re.compile(r"169\.254\.169\.254|metadata\.google\.internal|/computeMetadata/|/metadata/identity")


_process: int | None = None  # that uses obstore, whose threads a forked child does not have


def _check_process(name: str) -> None:
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise UnsupportedError(
            f"{name}: process {os.getpid()} was forked from {_process}, which has used an object store; its client "
            "would wait forever. Start processes with the method 'spawn' or 'forkserver', or fork before the first use"
        )


class RefusedError(Exception):
    """The condition of a request is not met."""


class Client:
    """One bucket. Its methods are those of bitsnap::ObjectStore; conditional requests may raise RefusedError."""

    def __init__(self, name: str) -> None:
        try:
            import obstore
            import obstore.store
        except ImportError as error:
            raise UnsupportedError(f"{name}: needs the package obstore: {_INSTALL}") from error
        self._name = name
        self._obstore: Any = obstore
        more, http, endpoint = _connection(name)
        self._endpoint = re.sub(r"//[^/@]*@", "//", endpoint or "") or "the service"
        from_url = self._obstore.store.from_url
        try:
            self._to_read = from_url(name, client_options=_TIMEOUT | http, retry_config=_RETRY, **more)
            self._to_change = from_url(name, client_options=_TIMEOUT_CHANGE | http, retry_config=_RETRY_CHANGE, **more)
        except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
            raise UnsupportedError(f"{name}: {_short(error)}") from error

    @property
    def _bucket(self) -> Any:
        """For what reads, and for uploads."""
        _check_process(self._name)
        return self._to_read

    @property
    def _changed(self) -> Any:
        """For one request that changes an object."""
        _check_process(self._name)
        return self._to_change

    def _failed(self, request: str, key: str, error: Exception) -> Exception:
        place = f"{self._name}/{key}"
        if isinstance(error, UnsupportedError):
            return error
        if isinstance(error, FileNotFoundError):
            return NotFoundError(f"{request} {place}: there is no such object, or no such bucket")
        return IoError(f"{request} {place}: {self._why(error)}")

    def _why(self, error: Exception) -> str:
        """What is wrong and what to do, or else the first sentence of obstore's error."""
        service = _SERVICES[self._name.partition(":")[0]]
        errors = self._obstore.exceptions
        if isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError):
            return (
                f"{service.name} refused the credentials, or they do not allow this request ({_short(error)}). Check "
                f"{service.credentials}, and the rights that they have in {self._name}"
            )
        if _ASKS_THE_MACHINE.search(str(error).split("\n", maxsplit=1)[0]):
            return (
                f"no credentials were found: set {service.credentials}. Without them, bitsnap asks for the role of a "
                "machine in the cloud, and this machine has none"
            )
        if "Connect" in str(error) or "error sending request" in str(error):
            found = re.search(r'message: "([^"]*)"|(dns error)', str(error))
            cause = next(filter(None, found.groups())) if found else _short(error)
            return f"{self._endpoint} cannot be reached: {cause}. Check {service.endpoint}, and the network"
        text = _short(error)
        if "status code: 404" in text:
            return f"{text}. Create the bucket first"
        return (
            f"{text}. The service or the network failed, and trying again may help; all committed checkpoints are whole"
        )

    def find(self, key: str) -> _Found | None:
        try:
            return _found(self._obstore.head(self._bucket, key))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._failed("find", key, error) from error

    def read_tail(self, key: str, most: int) -> tuple[_Found, bytes]:
        try:
            try:
                answer = self._obstore.get(self._bucket, key, options={"range": {"suffix": most}})
            except (FileNotFoundError, self._obstore.exceptions.PermissionDeniedError):
                raise
            except Exception:
                # An empty object has no last bytes, Azure reads from a beginning only, and some servers of S3 send
                # all of a small object.
                meta = self._obstore.head(self._bucket, key)
                options: dict[str, Any] = {"if_match": meta["e_tag"]}
                if meta["size"] > most:
                    options["range"] = (meta["size"] - most, meta["size"])
                answer = self._obstore.get(self._bucket, key, options=options)
            return _found(answer.meta), bytes(answer.bytes())
        except Exception as error:
            raise self._failed("read", key, error) from error

    def read(self, key: str, version: _Version, offset: int, out: memoryview) -> None:
        options: dict[str, Any] = {"range": (offset, offset + len(out))}
        if e_tag := version.partition("\n")[0]:
            options["if_match"] = e_tag
        try:
            got = self._obstore.get(self._bucket, key, options=options).bytes()
        except self._obstore.exceptions.PreconditionError as error:
            raise NotFoundError(f"read {self._name}/{key}: the object was replaced") from error
        except Exception as error:
            raise self._failed("read", key, error) from error
        if len(got) != len(out):
            raise IoError(f"read {self._name}/{key}: expected {len(out)} bytes at {offset}, got {len(got)}")
        out[:] = memoryview(got)

    def _put(self, key: str, data: bytes, mode: Any) -> _Version:
        try:
            return _version_of(self._obstore.put(self._changed, key, data, mode=mode, use_multipart=False))
        except (self._obstore.exceptions.AlreadyExistsError, self._obstore.exceptions.PreconditionError) as error:
            raise RefusedError from error
        except FileNotFoundError as error:
            if isinstance(mode, dict):  # there is no object that could have the version
                raise RefusedError from error
            raise self._failed("write", key, error) from error
        except Exception as error:
            raise self._failed("write", key, error) from error

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data, "overwrite")

    def put_if_absent(self, key: str, data: bytes) -> _Version:
        return self._put(key, data, "create")

    def put_if_version(self, key: str, data: bytes, version: _Version) -> _Version:
        e_tag, _, generation = version.partition("\n")
        return self._put(key, data, {k: v for k, v in (("e_tag", e_tag), ("version", generation)) if v})

    def upload(self, key: str) -> Upload:
        return Upload(self, key)

    def copy(self, source: str, target: str) -> None:
        try:
            self._obstore.copy(self._changed, source, target)
        except Exception as error:
            raise self._failed("copy", source, error) from error

    def remove(self, key: str) -> None:
        try:
            self._obstore.delete(self._changed, key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._failed("remove", key, error) from error

    def list(self, prefix: str, is_deep: bool) -> tuple[list[tuple[str, _Found]], list[str]]:
        try:
            if is_deep:
                metas = list(self._all_below(prefix))
                prefixes: list[str] = []
            else:
                listed = self._obstore.list_with_delimiter(self._bucket, prefix or None)
                metas, prefixes = list(listed["objects"]), list(listed["common_prefixes"])
        except Exception as error:
            raise self._failed("list", prefix, error) from error
        return sorted((meta["path"], _found(meta)) for meta in metas), sorted(prefixes)

    def _all_below(self, prefix: str) -> Iterator[Any]:
        for chunk in self._obstore.list(self._bucket, prefix or None, chunk_size=1000):
            yield from chunk


class Upload:
    """An object in parts, which exists when the last one is there. Given up, its parts stay with the service until a
    rule of the bucket removes them."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._writer = client._obstore.open_writer(
            client._bucket, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )

    def append(self, data: bytes) -> None:
        try:
            self._writer.write(data)
        except Exception as error:
            raise self._client._failed("write", self._key, error) from error

    def finish(self) -> None:
        try:
            self._writer.close()
        except Exception as error:
            raise self._client._failed("write", self._key, error) from error


def _connection(name: str) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Options of the client, and of its connections: what obstore does not read from the environment. And the endpoint,
    if one is set."""
    scheme = name.partition(":")[0]
    if scheme == "s3":
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        more = {"credential_provider": _credentials()} | ({"endpoint": endpoint} if endpoint else {})
        if "AWS_CHECKSUM_ALGORITHM" not in os.environ:
            more["checksum_algorithm"] = "SHA256"  # which a request is signed with anyway; the service compares it
    elif scheme == "gs":
        endpoint = os.environ.get("STORAGE_EMULATOR_HOST")
        if endpoint and "://" not in endpoint:
            endpoint = f"http://{endpoint}"
        # An account without a key is the only one that obstore does not ask Google for a token of.
        account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        more = {"service_account_key": json.dumps(account | {"private_key_id": ""})} if endpoint else {}
    else:
        endpoint = os.environ.get("AZURE_STORAGE_ENDPOINT")
        more = {}
    return more, {"allow_http": True} if endpoint and endpoint.startswith("http:") else {}, endpoint


def _credentials() -> Any:
    """What boto3 finds, if it is installed: profiles, single sign-on, and programs, which obstore does not know."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return None
    try:
        import boto3  # type: ignore[import-not-found, unused-ignore]
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    session = boto3.Session()
    return Boto3CredentialProvider(session) if session.get_credentials() is not None else None


def main() -> None:
    """The command `bitsnap`, with clients of object stores."""
    status = run_command(["bitsnap", *sys.argv[1:]])
    sys.stdout.flush()
    os._exit(status)  # threads of the library may still hold clients
