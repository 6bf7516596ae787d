"""The journal of a training that is killed, and what can be seen of a checkpoint that a kill has cut."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from soak.training_journal import Journal, JournalWriter, hashes_of
from soak.watched_training import is_intact


def test_a_save_that_a_kill_has_cut_is_told_and_its_line_is_passed_over(tmp_path: Path) -> None:
    checkpoint = tmp_path / "step-1"
    checkpoint.mkdir()
    (checkpoint / "weights").write_bytes(b"first")
    writer, journal = JournalWriter(tmp_path / "journal", 0), Journal(tmp_path / "journal")
    writer.stepped(1, 0.5)
    writer.saving(1)
    writer.saved(1, checkpoint)
    writer.saving(2)
    with journal.path.open("a") as file:
        file.write('{"record": "saved", "step": 2')
    assert journal.after_kill() == 2
    writer.saved(1, checkpoint)
    assert journal.after_kill() is None
    assert journal.losses == [(1, 0.5)]
    assert journal.saved == {1: hashes_of(checkpoint)}
    assert journal.saved_again == [1]
    assert journal.saves == 2


def test_hashes_are_those_of_the_bytes_of_each_file(tmp_path: Path) -> None:
    file = tmp_path / "a.ckpt"
    file.write_bytes(b"first")
    before = hashes_of(file)
    assert set(before) == {"."}
    file.write_bytes(b"firsT")
    assert hashes_of(file) != before
    assert set(hashes_of(tmp_path)) == {"a.ckpt"}


def test_cut_files_of_a_checkpoint_are_found(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1000)}, tmp_path / "optimizer.pt")
    save_file({"w": torch.zeros(1000)}, tmp_path / "model.safetensors")
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 3}))
    assert is_intact(tmp_path)
    for name in ("optimizer.pt", "model.safetensors", "trainer_state.json"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-1])
        assert not is_intact(tmp_path), name
        (tmp_path / name).write_bytes(whole)
    assert is_intact(tmp_path)
