"""The ground of this package: what modules of all its parts use.

By sections: messages, variables of the environment, checks and types of arguments, where runs are, settings, places in
a state, and what a program has loaded. A check names the argument, and raises TypeError for a wrong type and
InvalidArgumentError for a wrong value.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import itertools
import logging
import math
import operator
import os
import re
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from bitsnap._bitsnap import Settings, Store as NativeStore, StoreOptions, idle_rules
from bitsnap.errors import ExistsError, InvalidArgumentError, UnsupportedError

# --- messages

# Saves and restored steps at INFO, failures and warnings at WARNING. It has no handler of its own, so that it is silent
# until the program sets logging up.
log = logging.getLogger("bitsnap")
log.addHandler(logging.NullHandler())


# Between the line of the user's that a warning is about, and the warning.
_BETWEEN = {"bitsnap", "accelerate", "contextlib", "deepspeed", "lightning", "megatron", "torch", "transformers"}
_BETWEEN |= {"lightning_fabric", "pytorch_lightning", "functools"}


def warn(message: str | Warning, category: type[Warning] = UserWarning, stacklevel: int | None = 1) -> None:
    """As warnings.warn(), and into the log. `stacklevel` None: the line of the user's, through which framework ever."""
    log.warning("%s", message)
    warnings.warn(message, category, stacklevel=(_level_of_user() if stacklevel is None else stacklevel) + 1)


def _level_of_user() -> int:
    """The stacklevel, in the function that calls the caller, of the first line outside; or else of the outermost."""
    frame, level = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    return level


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxtuple = 2, 4, 6, 6
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 160


def brief(value: object) -> str:
    """A value in an error message, on one line: not the elements of a tensor, nor all entries of a state."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    is_plain = isinstance(value, Mapping) and all(isinstance(each, str | int | float | None) for each in value.values())
    if isinstance(value, Mapping) and value and not is_plain:
        keys = ", ".join(map(_SHORT.repr, itertools.islice(value, 4)))
        return f"{type(value).__name__} with {keys}{', ...' if len(value) > 4 else ''}"
    return " ".join(_SHORT.repr(value).split("\n"))


# --- variables of the environment


def is_disabled() -> bool:
    """Whether BITSNAP_DISABLE asks the adapters to save as their frameworks do; they still load what bitsnap saved."""
    return os.environ.get("BITSNAP_DISABLE", "").lower() not in {"", "0", "false", "no"}


# --- arguments

LARGEST = (1 << 64) - 1
LARGEST_COUNT = (1 << 32) - 1
_LONGEST_LABEL = 255  # bytes
# Longer waits, some decades, are cut to this one.
_LONGEST_WAIT_MS = 1 << 40


def invalid(name: str, problem: str) -> InvalidArgumentError:
    """The error for an argument of this name."""
    error = InvalidArgumentError(f"{name} {problem}")
    error.field = name
    return error


def number_of(value: SupportsIndex, name: str, largest: int = LARGEST) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        swapped = "; are the arguments swapped?" if isinstance(value, Mapping) else ""
        raise TypeError(f"{name} must be an integer, got {brief(value)}{swapped}") from None
    if not 0 <= number <= largest:
        # Python refuses to print integers of thousands of digits.
        shown = str(number) if number.bit_length() < 100 else f"a number of {number.bit_length()} bits"
        raise invalid(name, f"must be 0 to {largest}, got {shown}")
    return number


def positive_of(value: SupportsIndex | None, name: str) -> int | None:
    if value is None:
        return None
    number = number_of(value, name)
    if number == 0:
        keeps = ": 1 keeps the newest checkpoint alone. Without keep_last and keep_every, all are kept"
        raise invalid(name, f"must be at least 1, got 0{keeps if name == 'keep_last' else ''}")
    return number


def count_of(value: SupportsIndex, name: str) -> int:
    """As number_of(), but not of a bool, which is an integer to Python and a mistake here."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {brief(value)}")
    return number_of(value, name)


def float_of(value: SupportsFloat, name: str) -> float:
    # float() would parse a str.
    if isinstance(value, str | bytes | bytearray | bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {brief(value)}")
    try:
        return float(value)
    except OverflowError:
        raise invalid(name, "is too large for a float") from None
    except (TypeError, ValueError):  # such as of a tensor of several elements
        raise TypeError(f"{name} must be a number, got {brief(value)}") from None


def milliseconds_of(value: Any, name: str) -> int:
    """Of an argument in seconds."""
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number of seconds, got {brief(value)}")
    try:
        seconds = float(value)
    except OverflowError:  # an integer
        seconds = math.inf if value > 0 else -math.inf
    if not seconds >= 0:
        raise invalid(name, f"must be a number of seconds that is not negative, got {brief(value)}")
    return math.ceil(min(seconds * 1000, _LONGEST_WAIT_MS))


def text_of(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {brief(value)}")
    return value


def check_callable(value: Any, name: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function or None, got {brief(value)}")


def given_or_new(options: Any, kind: type[Any], name: str) -> Any:
    """Options of a class, or those by default."""
    if options is not None and not isinstance(options, kind):
        raise TypeError(f"{name} must be bitsnap.{kind.__name__} or None, got {brief(options)}")
    return kind() if options is None else options


def may_pickle(allow_pickle: bool) -> bool:
    """Checks the argument, because a mistaken value must not allow a pickle."""
    if not isinstance(allow_pickle, bool):
        raise TypeError(f"allow_pickle must be True or False, got {brief(allow_pickle)}")
    return allow_pickle


def label_of(value: Any, name: str) -> str:
    text = text_of(value, name)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise invalid(name, f"must not have surrogates, which UTF-8 cannot hold, got {brief(text)}")
    return text


def labels_of(value: Any, name: str) -> list[str]:
    """A list of labels; a str is one."""
    if isinstance(value, str):
        return [label_of(value, name)]
    try:
        labels = list(value)
    except TypeError:
        raise TypeError(f"{name} must be a str or a list of them, got {brief(value)}") from None
    return [label_of(label, name) for label in labels]


def is_label(text: str) -> bool:
    """Whether a checkpoint may have this label; see Store.label()."""
    has_others = any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or 0xD800 <= ord(each) <= 0xDFFF for each in text)
    return bool(text) and not has_others and len(text.encode()) <= _LONGEST_LABEL


# --- types of arguments, and paths

if TYPE_CHECKING:
    import torch

    # Of tensors that are loaded.
    Device: TypeAlias = str | int | torch.device
else:
    Device = Any

PathLike: TypeAlias = str | os.PathLike[str]
Role: TypeAlias = Literal["weight", "master", "exp_avg", "exp_avg_sq", "other"]
# The masters of weights, by name: a master, or a tuple of it and the element in it where the weight begins.
# The metrics of a checkpoint by name, such as its loss.
Metrics: TypeAlias = Mapping[str, SupportsFloat]
Masters: TypeAlias = Mapping[str, str | tuple[str, SupportsIndex]]
# Called with (done bytes, total bytes) on any thread; False cancels.
Progress: TypeAlias = Callable[[int, int], object]
# Files or directories that are searched for bases.
Bases: TypeAlias = PathLike | Iterable[PathLike]

# Of pathlib, "s3://bucket" has one slash. Other names that end in a colon may be those of local directories.
_SCHEMES = (
    "abfss?|adl|az|azure|cos|dbfs|file|ftps?|gcs|gs|hdfs|hf|https?|memory|msc|obs|oci|oss|s3[an]?|sftp|smb|ssh|tos|"
    "viewfs|wasbs?|webdav|webhdfs"
)
_URL = re.compile(rf"[a-z][a-z0-9+.-]*://|(?:{_SCHEMES}):/", re.IGNORECASE)


def is_url(path: PathLike) -> bool:
    return _URL.match(os.fsdecode(path)) is not None


def local_path(path: PathLike) -> str:
    """The path as text. What takes a path calls this before it makes the path absolute, which would hide a URL.

    Raises:
        UnsupportedError: it is a URL.
    """
    text = os.fsdecode(path)
    if is_url(text):
        raise UnsupportedError(
            f"{text}: bitsnap saves to local files only, and this is a URL; pass the path of a folder, such as one "
            "where a bucket is mounted"
        )
    return text


def native_path(path: PathLike) -> bytes:
    native = os.fsencode(local_path(path))
    if b"\0" in native:
        raise invalid("path", f"must not contain a null character: {native!r}")
    return native


def absolute_path(path: PathLike, name: str) -> Path:
    """Absolute, so that a later change of the working directory has no effect."""
    text = local_path(path)
    if not text:
        raise invalid(name, "must not be empty")
    return Path(text).absolute()


def native_target(path: PathLike, overwrite: bool) -> bytes:
    """A path to write to, refused before anything is read if it exists and must not be replaced."""
    native = native_path(path)
    if not overwrite and os.path.lexists(native):
        raise ExistsError(f"{os.fspath(path)!r} exists; overwrite=True replaces it")
    return native


def native_bases(bases: Bases) -> list[bytes]:
    if isinstance(bases, str | os.PathLike):
        return [native_path(bases)]
    return [native_path(base) for base in bases]


def same_file(a: PathLike, b: PathLike) -> bool:
    try:
        return Path(a).samefile(b)
    except OSError:
        return False


# --- where runs are

# The absolute path of a run's directory, or its address.
Home: TypeAlias = Path | str

# Whose buckets can be the home of a run. pathlib makes one slash of two.
_OBJECT_URL = re.compile(r"(s3|gs|az):/{1,2}(?=[^/])")


def object_url(path: PathLike) -> str | None:
    """The address of a run in an object store; None: the path is another one."""
    text = os.fsdecode(path)
    found = _OBJECT_URL.match(text)
    return f"{found[1]}://{text[found.end() :].rstrip('/')}" if found else None


def native_run(path: PathLike) -> bytes:
    """The path or the address of a run."""
    url = object_url(path)
    return native_path(path) if url is None else os.fsencode(url)


def home_of(native: bytes) -> Home:
    text = os.fsdecode(native)
    return text if object_url(text) else Path(text)


def given_home(path: PathLike) -> Home:
    return object_url(path) or Path(local_path(path))


def absolute_home(path: PathLike, name: str) -> Home:
    return object_url(path) or absolute_path(path, name)


def native_home(path: PathLike, name: str) -> bytes:
    return native_run(absolute_home(path, name))


def real_home(path: PathLike) -> Home:
    """The same for all names of a directory."""
    return object_url(path) or Path(os.path.realpath(os.fsdecode(path)))


def make_parent(home: Home) -> None:
    """Makes the folder of a run's directory; a bucket needs none."""
    if isinstance(home, Path):
        home.parent.mkdir(parents=True, exist_ok=True)


def opened_store(path: Home, loads_bases: bool = False) -> NativeStore:
    """The store at a path as it is now, for reading. Raises NotFoundError if there is none.

    Args:
        loads_bases: what is loaded will be the base of a save.
    """
    options = StoreOptions()
    options.access = "read"
    options.create = False
    options.prunes = False
    options.keep_base_bytes = 0
    options.loads_bases = loads_bases
    return NativeStore.open(native_run(path), options)


# Words of frameworks before the number of a step; "100" alone is a step, too. A number behind any other word may be
# that of something else, as in the name of a temporary directory.
_STEP = re.compile(
    r"(?:(?:global_?step|step|iteration|iter|checkpoint|ckpt|epoch)[-_=]?)?(?P<step>[0-9]{1,20})", re.IGNORECASE
)


class CheckpointId(NamedTuple):
    """A run, and a step in it; None: the path names no step."""

    run: Home
    step: int | None


def checkpoint_id_of(path: PathLike) -> CheckpointId:
    """The run and the step that a path or an address names. Raises UnsupportedError if it is another URL."""
    url = object_url(path)
    whole = Path(os.path.abspath(local_path(path))) if url is None else Path(url)  # noqa: PTH100  links are kept
    found = _STEP.fullmatch(whole.name)
    run = whole if found is None else whole.parent
    return CheckpointId(run if url is None else str(object_url(run)), None if found is None else int(found["step"]))


# --- settings

_LOSSY_POLICIES = ("bounded", "bitsnap")


def settings_of(settings: Settings | str | None) -> Settings:
    """The settings for an argument: a str names a policy."""
    if settings is None or isinstance(settings, str):
        try:
            return Settings(policy=settings)  # type: ignore[arg-type]  # checked there
        except InvalidArgumentError as error:
            problem = str(error).removeprefix("policy ").replace("must be", "must be bitsnap.Settings or", 1)
            raise invalid("settings", problem) from None
    if not isinstance(settings, Settings):
        raise TypeError(f"settings must be bitsnap.Settings, the name of a policy, or None, got {brief(settings)}")
    return settings


def may_lose(settings: Settings) -> bool:
    return settings.policy in _LOSSY_POLICIES or bool(settings.loss)


def warn_of_idle_rules(settings: Settings, tensors: Iterable[tuple[str, str, str | None]], stacklevel: int) -> None:
    """Warns of each rule of the caller that matches no tensor. `tensors` are names, dtypes and roles."""
    if settings.loss:
        for rule in idle_rules(settings, list(tensors)):
            warn(f"the rule {rule!r} matches no tensor of the state", stacklevel=stacklevel + 1)


# --- places in a state, and names

# The keys that lead from the state to a value.
KeyPath: TypeAlias = tuple[object, ...]
# Longer paths are cut in messages.
_SHOWN_PATH = 400


def component(key: object) -> str:
    """A key as part of the name of a tensor: ``optimizer.state.0.exp_avg``."""
    if isinstance(key, str):
        return key
    try:
        return str(key) if isinstance(key, int | None) else repr(key)
    except ValueError:
        return _printed(key)


def _printed(key: object) -> str:
    """A key as its repr(); an integer of more decimal digits than Python prints is hexadecimal."""
    try:
        return repr(key)
    except ValueError:
        if isinstance(key, int):
            return hex(key)
        if not isinstance(key, tuple | frozenset):
            raise
        return f"{type(key).__name__}({', '.join(map(_printed, key))})"


def keystr(path: KeyPath, root: str) -> str:
    """A place as messages name it: ``state['optimizer']['state'][0]``."""
    text = root + "".join(f"[{_printed(key)}]" for key in path)
    return text if len(text) <= _SHOWN_PATH else f"{text[:_SHOWN_PATH]}..."


def join(path: KeyPath, name: str, key: object) -> str:
    """The dotted name of an item in the container at `path` with the name `name`."""
    return f"{name}.{component(key)}" if path else component(key)


def alike(name: str, names: list[str]) -> str:
    """For messages: the names that are similar, if there are any."""
    found = difflib.get_close_matches(name, names[:10_000], n=3)
    return f"; did you mean {', '.join(map(repr, found))}?" if found else ""


# --- what a program has loaded

_loaded_torch: ModuleType | None = None


def loaded_torch() -> ModuleType | None:
    """torch if the program has imported it, which is a condition for any object to be a tensor.

    None while another thread is still importing it: it is incomplete, and no tensor exists yet.
    """
    global _loaded_torch
    if _loaded_torch is None:
        torch = sys.modules.get("torch")
        _loaded_torch = None if getattr(getattr(torch, "__spec__", None), "_initializing", False) else torch
    return _loaded_torch


@functools.cache
def optional_module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def import_torch() -> Any:
    torch = optional_module("torch")
    if torch is None:
        raise ImportError("bitsnap: framework 'pt' needs the package torch; framework 'np' gives numpy arrays")
    return torch


def has_torch() -> bool:
    return optional_module("torch") is not None
