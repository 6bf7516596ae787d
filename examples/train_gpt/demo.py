"""The demonstration that `make demo` runs: trains, kills, restores, continues, compares, and reports the cost.

A small GPT is trained twice in child processes: once without interruption, once killed with SIGKILL during a save and
resumed from the newest state. It saves every step into the memory of an agent, which stores every Nth step. Every
tensor of the restored state, and every loss up to the last step, must be equal bit for bit. The exit status is 0 if all
of this holds, otherwise 1 with the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from checkpoints import STORAGES, CheckpointFolder, TorchFolder, end_agent, open_folder
from child import Child, ChildError
from records import ROLES, Record, differences, raw_bytes_by_role, read_record, record_of, tensor_count
from screen import Screen, megabytes, print_table
from train import SIZES, record_path

_PROJECT = Path(__file__).resolve().parents[2]
_MARKER = ".bitsnap-demo"
_MOST_WAITED_S = 120.0


class FailedError(Exception):
    """A check of the demonstration failed."""


def prepare(out: Path) -> None:
    """Empties the folder, but refuses one with files that are not from an earlier demonstration."""
    if out.exists() and any(out.iterdir()):
        if not (out / _MARKER).exists():
            raise FailedError(f"{out}: holds files that are not from an earlier demonstration; choose another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / _MARKER).touch()


def shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class Demo:
    def __init__(self, arguments: argparse.Namespace, screen: Screen) -> None:
        self.out: Path = arguments.out.resolve()
        self.steps: int = arguments.steps
        self.every: int = arguments.every
        self.size: str = arguments.size
        self.storage: str = arguments.storage
        self.screen = screen
        # Slightly past the middle, at a checkpoint with others before and after it; if every step is saved in memory,
        # halfway to the next checkpoint.
        self.last_stored = max(3, (self.steps * 6 // 10) // self.every) * self.every
        self.kill_step = self.last_stored if self.storage == "torch" else self.last_stored + max(1, self.every // 2)
        self.saves: list[dict[str, Any]] = []  # completed saves
        self.run = self.out / "run"
        self.reference = self.out / "reference"

    def child(self, run: Path, name: str, *extra: str) -> Child:
        arguments = ["--out", str(run), "--steps", str(self.steps), "--size", self.size, "--storage", self.storage]
        return Child([*arguments, *extra], self.out / "logs" / f"{name}.txt")

    def show_progress(self, what: str, child: Child, reference: Child) -> None:
        other = reference.latest_step()
        self.screen.progress(f"{what}: step {child.latest_step()} of {self.steps}   reference run: {other}")

    def train_and_kill(self, reference: Child) -> dict[int, dict[str, Any]]:
        # The trainer waits at the step in which it is to be killed.
        options = ["--every", str(self.every), "--wait-after", str(self.kill_step)]
        self.screen.heading("1  Train, and kill it hard")
        last_save_seconds = 0.0
        start = time.monotonic()
        with self.child(self.run, "killed", *options) as child:
            for event in child.events():
                if event["event"] == "start":
                    self.introduce(event)
                elif event["event"] == "saved":
                    last_save_seconds = event["seconds"]
                elif event["event"] == "saving" and event["step"] == self.kill_step:
                    time.sleep(last_save_seconds / 2)
                    child.kill()
                    seconds = time.monotonic() - start
                    self.screen.line(f"  SIGKILL while it saved step {self.kill_step}, {seconds:.0f} s in")
                    self.saves += child.named("finished")
                    return child.steps()
                self.show_progress("training", child, reference)
            child.finish()
        raise FailedError(f"the training ended before step {self.kill_step} was saved")

    def introduce(self, start: dict[str, Any]) -> None:
        shape = SIZES[self.size]
        parameters, text = start["parameters"] / 1e6, start["text_bytes"] / 1e6
        self.screen.line(
            f"  a GPT of {shape.layers} layers and {parameters:.1f} M parameters; bf16 weights, fp32 masters, AdamW"
        )
        self.screen.line(f"  text: {text:.1f} MB of Python's own library, {start['tokens']:,} tokens")
        where = "" if self.storage == "torch" else ": every step into memory, and to the disk"
        self.screen.line(f"  {self.steps} steps{where or ', a checkpoint'} every {self.every} steps")

    def check_newest(self, folder: CheckpointFolder) -> int:
        self.screen.heading("2  Load the newest checkpoint from the disk")
        if self.storage == "torch":
            steps, allowed = folder.steps(), [self.last_stored - self.every, self.last_stored]
        else:
            # The agent outlives the trainer and stores its staged saves.
            steps, allowed = self.wait_for_checkpoint(folder, self.last_stored), [self.last_stored]
        if not steps or steps[-1] not in allowed:
            expected_steps = " or ".join(map(str, allowed))
            raise FailedError(f"{folder.folder}: holds checkpoints {steps}; the newest should be {expected_steps}")
        newest = steps[-1]
        if self.storage == "torch":
            fate = "was just complete" if newest == self.kill_step else "was cut short: there is no such checkpoint"
            self.screen.line(f"  step {self.kill_step} {fate}")
        state, expected = self.load_checked(folder, newest)
        size = megabytes(sum(raw_bytes_by_role(state).values()))
        tensors = tensor_count(expected)
        self.screen.line(f"  step {newest}: {tensors} tensors, {size}, and {len(expected) - tensors} other values")
        self.screen.line(f"  every bit as it was in the trainer's memory  {self.screen.good('ok')}")
        return newest

    def wait_for_checkpoint(self, folder: CheckpointFolder, step: int) -> list[int]:
        """Waits for a step on the disk, with a timeout; returns the steps on the disk."""
        end = time.monotonic() + _MOST_WAITED_S
        while step not in (steps := folder.steps()) and time.monotonic() < end:
            self.screen.progress(f"the agent writes step {step}")
            time.sleep(0.05)
        return steps

    def load_checked(self, folder: CheckpointFolder, step: int) -> tuple[Any, Record]:
        state = folder.load(step)
        expected = read_record(record_path(self.run, step))
        wrong = differences(expected, record_of(state))
        if wrong:
            raise FailedError(
                f"{folder.folder}, step {step}: {len(wrong)} values are not what was saved, the first at {wrong[0]}"
            )
        return state, expected

    def resume(self, newest: int, reference: Child) -> tuple[int, dict[int, dict[str, Any]]]:
        """Returns the step from which the training resumed, and its reports of the later steps."""
        self.screen.heading("3  Continue to the end")
        # Memory has the last staged step: the one being saved at the kill, or the one before it.
        allowed = {newest} if self.storage == "torch" else {self.kill_step - 1, self.kill_step}
        begin = newest
        with self.child(self.run, "resumed", "--every", str(self.every), "--resume") as child:
            for event in child.events():
                if event["event"] == "restored":
                    begin = event["step"]
                    if begin not in allowed:
                        raise FailedError(f"the training resumed from step {begin}, not from one of {sorted(allowed)}")
                    if self.storage != "torch" and event["source"] != "memory":
                        raise FailedError(f"the training resumed from the {event['source']}, not from memory")
                    where = "the newest checkpoint" if self.storage == "torch" else "the agent's memory, not the disk"
                    tensors = event["tensors"]
                    self.screen.line(f"  step {begin} restored from {where}: {tensors} tensors, every bit")
                self.show_progress("training", child, reference)
            child.finish()
            steps = child.steps()
            self.saves += child.named("finished")
        if sorted(steps) != list(range(begin + 1, self.steps + 1)):
            raise FailedError(f"the resumed training reported steps {sorted(steps)}")
        loss = float.fromhex(steps[self.steps]["loss"])
        self.screen.line(f"  steps {begin + 1} to {self.steps}, the last loss {loss:.4f}")
        return begin, steps

    def tell_of_saving(self) -> None:
        """Reports the time that saving took, and the sizes of the saved states."""
        if not self.saves:
            return
        stalls = sorted(save["stall_seconds"] for save in self.saves)
        raw = sum(save["raw_bytes"] for save in self.saves)
        stored = sum(save["stored_bytes"] for save in self.saves)
        busy = sum(save["encode_seconds"] for save in self.saves)
        on_disk = sum(save["on_disk"] for save in self.saves)
        one = self.saves[0]["raw_bytes"]
        stall = stalls[len(stalls) // 2]
        self.screen.line(
            f"  {len(self.saves)} steps saved, {on_disk} of them on disk: each held the training up for "
            f"{1000 * stall:.1f} ms, {megabytes(one)} copied at {one / stall / 1e9:.1f} GB/s"
        )
        self.screen.line(
            f"  the agent compressed them {raw / stored:.2f} times beside it, at {raw / busy / 1e6:.0f} MB/s"
        )

    def compare(self, newest: int, killed: dict[int, Any], resumed: dict[int, Any], reference: Child) -> None:
        self.screen.heading("4  Compare with the run that was never stopped")
        for _ in reference.events():
            self.screen.progress(f"reference run: step {reference.latest_step()} of {self.steps}")
        reference.finish()
        expected = reference.steps()
        for name, steps in (("killed", killed), ("resumed", resumed)):
            for step, found in steps.items():
                if found != expected.get(step):
                    raise FailedError(
                        f"step {step} of the {name} run: {found}; the undisturbed run: {expected.get(step)}"
                    )
        last = expected[self.steps]["loss"]
        ok = self.screen.good("ok")
        self.screen.line(f"  all {self.steps} losses and gradient norms equal to the last digit  {ok}")
        self.screen.line(f"  the last loss in both, exactly: {last} = {float.fromhex(last)!r}")
        wrong = differences(
            read_record(record_path(self.reference, self.steps)), read_record(record_path(self.run, self.steps))
        )
        if wrong:
            raise FailedError(f"the final states differ in {len(wrong)} values, the first at {wrong[0]}")
        self.screen.line(f"  the final states equal in every bit  {ok}")
        losses = self.out / "losses.csv"
        rows = [f"{step},{float.fromhex(event['loss'])!r},{event['loss']}" for step, event in sorted(expected.items())]
        losses.write_text("step,loss,loss_hex\n" + "\n".join(rows) + "\n")

    def measure(self, folder: CheckpointFolder) -> None:
        self.screen.heading("5  What the checkpoints cost")
        plain = TorchFolder(self.out / "torch.save")
        others: dict[str, CheckpointFolder] = {"torch.save": plain}
        if self.storage == "bitsnap":
            for policy in ("lmc", "bitsnap"):
                others[policy] = open_folder("bitsnap", self.out / policy, policy)
        methods = {"lossless" if self.storage == "bitsnap" else "stored": folder, **others}
        raw = dict.fromkeys(ROLES, 0)
        stored = {method: dict.fromkeys(ROLES, 0) for method in methods}
        same_bits: dict[str, str] = {}
        steps = folder.steps()
        for index, step in enumerate(steps):
            self.screen.progress(f"the same checkpoints stored by other means: {index} of {len(steps)}")
            state, expected = self.load_checked(folder, step)
            for role, size in raw_bytes_by_role(state).items():
                raw[role] += size
            for method in others.values():
                method.save(step, state)
            for name, method in methods.items():
                for role, size in method.stored_bytes_by_role(step).items():
                    stored[name][role] += size
                if step == steps[-1]:
                    wrong = differences(expected, record_of(method.load(step)))
                    same_bits[name] = f"{len(wrong)} differ" if wrong else "yes"
            plain.path(step).unlink()  # as large as the raw state, and not needed any more
        plain.folder.rmdir()
        for method in others.values():
            method.close()
        whole = len(folder.keyframe_steps())
        changes = f", {len(steps) - whole} as changes since the previous one" if whole < len(steps) else ""
        self.screen.line(f"  {len(steps)} checkpoints: {whole} whole{changes}")
        self.screen.line()
        print_table(self.screen, raw, stored, same_bits)
        if self.storage == "bitsnap":
            self.screen.line()
            for text in (
                "lmc, bitsnap: as reconstructed from what is published;",
                "bitsnap without its lossy quantizers",
            ):
                self.screen.line(self.screen.dim(f"  {text}"))
        report = {"steps": steps, "raw_bytes": raw, "stored_bytes": stored, "same_bits": same_bits}
        (self.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")

    def hints(self, folder: CheckpointFolder) -> None:
        newest, before = reversed(folder.steps()[-2:])
        run = shown(folder.folder)
        tool = shown(Path(sys.executable).with_name("bitsnap"))
        self.screen.heading("Files")
        self.screen.line(f"  {run}/   the checkpoints")
        self.screen.line(f"  {shown(self.out)}/losses.csv, report.json   the losses, and this table in bytes")
        if self.storage == "bitsnap":
            self.screen.heading("To try next")
            self.screen.line(f"  {tool} log {run}")
            self.screen.line(f"  {tool} inspect {run}@{newest}")
            self.screen.line(f"  {tool} verify {run}")
            self.screen.line(f"  {tool} diff {run}@{before} {run}@{newest}")
            self.screen.line(f"  {tool} report {run} --timings {run}-saves.jsonl -o {shown(self.out)}/report.html")

    def play(self) -> None:
        start = time.monotonic()
        prepare(self.out)
        self.screen.line(self.screen.bold("bitsnap: a training that survives its own death"))
        with self.child(self.reference, "reference") as reference:
            killed = self.train_and_kill(reference)
            folder = open_folder(self.storage, self.run / "store", read_only=True)
            newest = self.check_newest(folder)
            begin, resumed = self.resume(newest, reference)
            self.tell_of_saving()
            self.compare(begin, killed, resumed, reference)
        if self.storage == "bitsnap":
            end_agent(self.run / "store")
        self.measure(folder)
        self.hints(folder)
        self.screen.line()
        self.screen.line(f"Everything held, in {time.monotonic() - start:.0f} s.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=_PROJECT / "demo-run", help="folder for everything it writes")
    parser.add_argument("--steps", type=int, default=60, help="length of the training (default 60)")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints (default 10)")
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--storage", choices=STORAGES, default="bitsnap", help="torch: the same with torch.save")
    arguments = parser.parse_args()
    if arguments.every < 1 or arguments.steps < 5 * arguments.every:
        parser.error("--steps must hold at least five checkpoints")
    screen = Screen()
    try:
        Demo(arguments, screen).play()
    except (FailedError, ChildError) as error:
        screen.line()
        screen.line(f"FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        screen.line()
        screen.line("stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
