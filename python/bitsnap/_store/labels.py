"""The methods of a store for labels: names of checkpoints beside their steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

from bitsnap import _bitsnap
from bitsnap._arguments.checks import invalid, number_of, text_of

_LONGEST_LABEL = 255  # bytes


def label_of(value: Any, name: str) -> str:
    text = text_of(value, name)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise invalid(name, f"must not have surrogates, which UTF-8 cannot hold, got {text!r}")
    return text


def is_label(text: str) -> bool:
    """Whether a checkpoint may have this label; see StoreLabels.label()."""
    has_others = any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or 0xD800 <= ord(each) <= 0xDFFF for each in text)
    return bool(text) and not has_others and len(text.encode()) <= _LONGEST_LABEL


def labels_of(value: Any, name: str) -> list[str]:
    """A list of labels; a str is one."""
    if isinstance(value, str):
        return [label_of(value, name)]
    try:
        labels = list(value)
    except TypeError:
        raise TypeError(f"{name} must be a str or a list of them, got {value!r}") from None
    return [label_of(label, name) for label in labels]


class StoreLabels:
    """Part of Store, which has the attribute."""

    _native: _bitsnap.Store

    def label(self, step: SupportsIndex, label: str | Iterable[str]) -> None:
        """Gives a checkpoint a label, such as "best" or "epoch=3-val=0.12", or several.

        A label names at most one checkpoint of the store. If it names another one, it moves to this step, in one
        moment: every reader sees the one or the other. A checkpoint may have many labels. They disappear when it is
        pruned or rolled back.

        Args:
            step: of the checkpoint.
            label: 1 to 255 bytes in UTF-8, without control characters, and not digits alone.

        Raises:
            NotFoundError: there is no checkpoint of that step; the message names the nearest steps.
            InvalidArgumentError: a label has another length or other characters, or the store is read_only.
            BusyError, IoError: as save() does.
        """
        self._native.label(number_of(step, "step"), labels_of(label, "label"))

    def unlabel(self, label: str) -> None:
        """Removes a label. Its checkpoint stays.

        Raises:
            NotFoundError: no checkpoint has the label; the message names similar ones.
            BusyError, IoError: as save() does.
        """
        self._native.unlabel(label_of(label, "label"))

    def find(self, label: str) -> int:
        """The step of the checkpoint with this label: ``store.load(store.find("best"))``.

        Raises:
            NotFoundError: no checkpoint has the label; the message names similar ones. If there may be none, ask
                labels(): ``store.labels().get("last")``.
            CorruptError: the record of the labels is damaged; repair() removes it.
        """
        return self._native.find(label_of(label, "label"))

    def labels(self) -> dict[str, int]:
        """All labels with their steps, in order of their bytes in UTF-8."""
        return dict(self._native.labels())
