"""Labels of a store: names of checkpoints beside their steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.run_states import Run, filled


def test_a_label_names_one_checkpoint_and_moves(tmp_path: Path) -> None:
    run = Run()
    with bitsnap.Store(tmp_path / "run") as store:
        assert store.labels() == {}
        first = store.save(1, run.advance(), labels=["last", "epoch=3-val=0.12"])
        assert first.labels == ["epoch=3-val=0.12", "last"]
        assert store.save(2, run.advance(), labels="last").labels == ["last"]
        assert store.labels() == {"epoch=3-val=0.12": 1, "last": 2}
        store.label(1, "best")
        store.label(2, ["best", "époque"])
        assert store.find("best") == store.find("époque") == 2
        store.unlabel("last")
        assert [each.labels for each in store.checkpoints()] == [["epoch=3-val=0.12"], ["best", "époque"]]
        assert store.checkpoint(2).labels == ["best", "époque"]
        assert store.checkpoints()[1].step == 2
    with bitsnap.Store(tmp_path / "run", read_only=True) as reader:
        assert reader.labels() == {"best": 2, "epoch=3-val=0.12": 1, "époque": 2}
        with pytest.raises(bitsnap.InvalidArgumentError, match="read-only"):
            reader.label(1, "best")


def test_errors_name_similar_labels_and_nearby_steps(tmp_path: Path) -> None:
    filled(tmp_path / "run", 2)
    with bitsnap.Store(tmp_path / "run") as store:
        store.label(10, "last")
        with pytest.raises(
            bitsnap.NotFoundError, match="no checkpoint has the label 'lost'; a similar label is 'last'"
        ):
            store.find("lost")
        with pytest.raises(bitsnap.NotFoundError, match="'best'"):
            store.unlabel("best")
        with pytest.raises(bitsnap.NotFoundError, match="step 30 not found; nearby are 10 and 20"):
            store.label(30, "best")


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("", bitsnap.InvalidArgumentError),
        ("x" * 256, bitsnap.InvalidArgumentError),
        ("a\nb", bitsnap.InvalidArgumentError),
        ("a\ud800", bitsnap.InvalidArgumentError),
        (b"best", TypeError),
        (3, TypeError),
    ],
)
def test_wrong_labels_are_refused_before_anything_is_saved(tmp_path: Path, label: Any, kind: type[Exception]) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(kind):
            store.save(1, Run().advance(), labels=[label])
        with pytest.raises(kind):
            store.find(label)
        assert store.steps() == []


def test_digits_alone_are_no_label(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, Run().advance(), labels="20x")
        for give in (lambda: store.label(1, ["best", "20"]), lambda: store.save(2, Run().advance(), labels="20")):
            with pytest.raises(bitsnap.InvalidArgumentError, match="digits alone, because RUN@20 is step 20; got '20'"):
                give()
        assert store.labels() == {"20x": 1}
        with pytest.raises(bitsnap.NotFoundError, match="no checkpoint has the label '20'; a similar label is '20x'"):
            store.unlabel("20")


def test_labels_disappear_with_their_checkpoints_and_may_protect_them(tmp_path: Path) -> None:
    run = Run()
    settings = bitsnap.Settings(max_depth=0)
    with bitsnap.Store(tmp_path / "run", settings=settings, keep_last=1, keep_labelled=True) as store:
        store.save(1, run.advance(), labels="best")
        for step in (2, 3):
            store.save(step, run.advance())
        assert store.steps() == [1, 3]
        store.save(4, run.advance(), labels="last")
        store.prune(keep_labelled=True)
        assert store.steps() == [1, 4]
        store.prune(keep_last=1)
        assert store.labels() == {"last": 4}
        with pytest.raises(bitsnap.InvalidArgumentError, match="keep_labelled"):
            store.prune()


def test_processes_commit_with_labels(tmp_path: Path) -> None:
    run = Run()
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for shard in range(2):
            store.save_shard(1, run.advance(), shard=shard, shards=2, attempt="a")
        outcome = store.commit(1, 2, "a", labels=["best"])
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.labels == ["best"]
        assert store.find("best") == 1


def test_a_folder_is_added_with_labels(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_bytes(b"{}")
    with bitsnap.Store(tmp_path / "run") as store:
        assert store.add_folder(1, tmp_path / "folder", labels=["best", "last"]).labels == ["best", "last"]
        assert store.add_folder(2, tmp_path / "folder", labels="last").labels == ["last"]
        assert store.labels() == {"best": 1, "last": 2}
        with pytest.raises(bitsnap.InvalidArgumentError, match="label"):
            store.add_folder(3, tmp_path / "folder", labels="")
        assert store.steps() == [1, 2]
