"""bitsnap.megatron with a real GPT of Megatron-core on four ranks, beside Megatron's own torch_dist."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import bitsnap.megatron
from bitsnap._references import StepOfRun
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_saves import RankSaves
from bitsnap.megatron import _versions as versions
from bitsnap.megatron._folders import destination_of, is_ours, remove_stock, step_of
from bitsnap.megatron._shards import adam_values
from python.processes import run_script

needs_megatron = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed"
)


def found_by(function: str, path: Path) -> dict[str, Any]:
    """What a function of megatron_scenario.py found."""
    run = f"from python.megatron.megatron_scenario import {function} as run; run()"
    run_script(f"import warnings; warnings.simplefilter('ignore'); {run}", path, timeout=290)
    found: dict[str, Any] = {}
    for line in (path / "facts").read_text().splitlines():
        found |= json.loads(line)
    return found


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found_by("main", tmp_path_factory.mktemp("megatron"))


@pytest.fixture(scope="module")
def facts_of_experts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found_by("main_experts", tmp_path_factory.mktemp("experts"))


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize(
    "layout", ["2 1 dp_reshardable", "2 1 fully_reshardable", "1 2 fully_reshardable", "1 1 fully_reshardable",
               "2 2 fully_reshardable"]
)  # fmt: skip
def test_every_layout_loads_what_stock_loads(facts: dict[str, Any], layout: str) -> None:
    assert facts[f"same {layout}"]
    assert facts[f"losses {layout}"]


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", ["dp_reshardable", "fully_reshardable"])
def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(facts: dict[str, Any], kind: str) -> None:
    assert facts[f"resumed {kind}"]
    assert facts[f"resumed losses {kind}"]


@pytest.mark.slow
@needs_megatron
def test_resharding_there_and_back_keeps_all_bits(facts: dict[str, Any]) -> None:
    assert facts["there and back"]


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", ["dp_reshardable", "fully_reshardable"])
@pytest.mark.parametrize("way", ["plain", "parallel"])
def test_weights_lie_beside_their_masters_and_moments(facts: dict[str, Any], way: str, kind: str) -> None:
    first, second = facts[f"codecs {way} {kind}"]
    assert first["weight"] == second["weight"] == ["rounded_from"]
    assert second["master"] == ["optimizer_step"]
    assert second["exp_avg_sq"] == ["gradient_step"]  # whose gradients are in bf16
    shards = facts[f"shards {way} {kind}"]
    assert len(shards["master"]) == (2 if (way, kind) == ("plain", "fully_reshardable") else 4)
    assert all(shards[role] == shards["master"] for role in ("weight", "exp_avg", "exp_avg_sq"))


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", ["dp_reshardable", "fully_reshardable"])
def test_all_ranks_know_the_numbers_of_adam_for_bounded_loss(facts: dict[str, Any], kind: str) -> None:
    assert [codecs["exp_avg"] for codecs in facts[f"codecs bounded {kind}"]] == [["scaled_by"]] * 2


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("layout", ["one stage", "two stages"])
@pytest.mark.parametrize("kind", ["dp_reshardable", "fully_reshardable"])
def test_experts_tied_embeddings_and_uneven_stages_load_what_stock_loads(
    facts_of_experts: dict[str, Any], kind: str, layout: str
) -> None:
    assert facts_of_experts[f"experts codecs {layout} {kind}"] == ["rounded_from"]
    assert facts_of_experts[f"experts resumed {layout} {kind}"]
    reshards = (layout, kind) == ("one stage", "fully_reshardable")
    targets = ["one stage", "two stages", "experts apart"] if reshards else [layout]
    assert all(facts_of_experts[f"experts {layout} to {target} {kind}"] for target in targets)


@pytest.mark.slow
@needs_megatron
def test_a_folder_holds_references_only(facts: dict[str, Any]) -> None:
    assert facts["files"] == ["bitsnap-reference.json", "metadata.json"]


@pytest.mark.slow
@needs_megatron
def test_deleted_folders_lead_to_prune(facts: dict[str, Any]) -> None:
    assert facts["steps"] == [1, 3, 4]


@pytest.mark.slow
@needs_megatron
def test_padding_of_buffers_is_stored_as_zeros(facts: dict[str, Any]) -> None:
    assert facts["noise"] == 0
    assert facts["unchanged"] < 0.05


@pytest.mark.slow
@needs_megatron
def test_roles_follow_from_the_keys(facts: dict[str, Any]) -> None:
    roles = {"model": "weight", "param": "master", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
    assert facts["roles"] == roles


@pytest.mark.slow
@needs_megatron
def test_an_older_iteration_is_saved_to_the_same_run_and_moved_folders_load(facts: dict[str, Any]) -> None:
    assert facts["moved"] == ["bitsnap", *(f"iter_{iteration:07d}" for iteration in (1, 2, 3, 4))]
    assert all(facts[f"moved {iteration}"] for iteration in (1, 2, 3))


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("strategy", ["plain", "wrapped"])
def test_values_keep_their_types_and_ranks(facts: dict[str, Any], strategy: str) -> None:
    assert facts[f"args {strategy}"]
    assert facts[f"rng {strategy}"]
    assert facts[f"tensor {strategy}"]
    assert facts["narrow"]


@pytest.mark.slow
@needs_megatron
def test_tensors_are_listed_and_loaded_whole_or_larger(facts: dict[str, Any]) -> None:
    assert facts["metadata"] == {"w": [8, 3], "r": [4]}
    assert facts["whole"] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert facts["held"] == [facts["whole"], 4, True]
    assert facts["exported"] == [".metadata", "common.pt", "metadata.json"]
    assert facts["grown"] == [[0, 0, 1], [1, 2, 2], [3, 3, 0], [0, 0, 0]]


@pytest.mark.slow
@needs_megatron
def test_errors_name_the_tensor_or_value_on_all_ranks(facts: dict[str, Any]) -> None:
    assert all(facts[f"error {key}"].startswith("CheckpointException") for key in ("missing", "w"))  # as torch_dist's
    assert "there is no tensor 'missing'" in facts["error missing"]
    assert "tensor 'w' has the global shape [8, 3], expected [4, 3]" in facts["error w"]
    assert all("rng_state/shard_1_4'][0] is of type object" in error for error in facts["refused"])


@pytest.mark.slow
@needs_megatron
def test_asynchronous_saves_hold_the_state_of_their_iteration(facts: dict[str, Any]) -> None:
    for iteration in (1, 2):
        assert not facts[f"early {iteration}"]
        assert facts[f"async {iteration}"]


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("phase", ["writing", "written", "committed", "referred"])
def test_a_killed_save_leaves_the_last_iteration_and_nothing_else(facts: dict[str, Any], phase: str) -> None:
    assert not facts[f"complete {phase}"]
    assert facts[f"found {phase}"]
    assert facts[f"saved again {phase}"]
    # What was committed without its folder, and what a folder led to before, is removed.
    assert facts[f"steps {phase}"] == ([1, 3, 4] if phase in ("committed", "referred") else [1, 2, 3])
    assert facts[f"left {phase}"] == ["bitsnap", "iter_0000001", "iter_0000002", "iter_0000003"]


@pytest.mark.slow
@needs_megatron
def test_the_module_runs_a_script_with_its_arguments_after_install(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.py"
    script.write_text(
        "import json, sys, beside\n"
        "from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy as Save\n"
        "print(json.dumps([__name__, sys.argv[1:], beside.x, Save.save.__module__]))\n"
    )
    (tmp_path / "beside.py").write_text("x = 5")
    printed = run_script(
        "import runpy, sys, warnings; warnings.simplefilter('ignore')\n"
        "sys.argv = ['', '--settings', 'bounded', *sys.argv[1:]]\n"
        "runpy.run_module('bitsnap.megatron', run_name='__main__', alter_sys=True)",
        script,
        "--save",
        "x",
    )
    assert json.loads(printed.splitlines()[-1]) == ["__main__", ["--save", "x"], 5, "bitsnap.megatron"]


def saved(folder: Path) -> StepOfRun:
    """A checkpoint with the reference of its folder."""
    saves = RankSaves(Options())
    new = saves.begin(*destination_of(folder))
    saves.write(saves.shard(new, {"x": new.saved.step}))
    saves.commit(new)
    remove_stock(folder)
    (folder / "metadata.json").write_text("{}")
    return step_of(folder)


def test_a_reference_leads_to_its_step(tmp_path: Path) -> None:
    assert saved(tmp_path / "iter_0000007") == StepOfRun(tmp_path / "bitsnap", 7)
    assert saved(tmp_path / "some" / "name") == StepOfRun(tmp_path / "some" / "name" / "bitsnap", 0)
    assert saved(tmp_path / "some" / "name").step == 1
    assert bitsnap.Store(tmp_path / "some" / "name" / "bitsnap", read_only=True).steps() == [1]


def test_damaged_and_lost_references_are_errors_that_say_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000007"
    with pytest.raises(bitsnap.NotFoundError, match="no checkpoint of bitsnap"):
        step_of(folder)
    saved(folder)
    (tmp_path / "bitsnap").rename(tmp_path / "elsewhere")
    with pytest.raises(bitsnap.NotFoundError, match="together with its run"):
        step_of(folder)
    bitsnap.Store(tmp_path / "bitsnap").close()
    with pytest.raises(bitsnap.NotFoundError, match=r"refers to the run .* but .* is the run"):
        step_of(folder)
    for text in ("{", "[]", '{"version": 0}', '{"version": 0, "run": "x", "run_id": "y", "step": -1}'):
        (folder / "bitsnap-reference.json").write_text(text)
        with pytest.raises(bitsnap.CorruptError, match="is damaged"):
            step_of(folder)
    (folder / "bitsnap-reference.json").write_text('{"version": 9, "run": "x", "run_id": "y", "step": 1}')
    with pytest.raises(bitsnap.UnsupportedError, match="version 9"):
        step_of(folder)


def test_an_iteration_below_the_newest_gets_the_next_step_and_the_label_of_its_folder(tmp_path: Path) -> None:
    for iteration in (1, 3, 2):
        place = saved(tmp_path / f"iter_{iteration:07d}")
    assert place.step == 4
    with bitsnap.Store(tmp_path / "bitsnap", read_only=True) as store:
        assert store.labels() == {"iter_0000001": 1, "iter_0000003": 3, "iter_0000002": 4}


def test_steps_are_removed_although_the_agent_of_one_rank_holds_the_store(tmp_path: Path) -> None:
    saved(tmp_path / "iter_0000001")
    saves = RankSaves(Options(agent=bitsnap.AgentOptions(linger=1.0), timeout=60))
    for iteration in (2, 3):
        new = saves.begin(*destination_of(tmp_path / f"iter_{iteration:07d}"))
        pending = saves.stage(saves.shard(new, {"w": iteration}))
        if iteration == 3:
            shutil.rmtree(tmp_path / "iter_0000001")
        saves.finish(pending)
    saves.leave()
    assert bitsnap.Store(tmp_path / "bitsnap", read_only=True).steps() == [2, 3]


def test_an_agent_is_told_of_its_own_run_only(tmp_path: Path) -> None:
    saves = RankSaves(Options(agent=bitsnap.AgentOptions(linger=1.0), timeout=60))
    for parent in ("one", "two"):
        saved(tmp_path / parent / "iter_0000001")
        saved(tmp_path / parent / "iter_0000002")
    shutil.rmtree(tmp_path / "one" / "iter_0000001")
    pending = []
    for parent in ("one", "two"):
        new = saves.begin(*destination_of(tmp_path / parent / "iter_0000003"))
        pending.append(saves.stage(saves.shard(new, {"w": 3})))
    for each in pending:
        saves.finish(each)
    saves.leave()
    assert [bitsnap.Store(tmp_path / parent / "bitsnap", read_only=True).steps() for parent in ("one", "two")] == [
        [2, 3], [1, 2, 3]
    ]  # fmt: skip


def test_a_save_that_begins_before_another_is_written_gets_another_step(tmp_path: Path) -> None:
    saved(tmp_path / "iter_0000005")
    saves = RankSaves(Options())
    begun = [saves.begin(*destination_of(tmp_path / f"iter_{iteration:07d}")) for iteration in (1, 2)]
    assert [new.saved.step for new in begun] == [6, 7]
    again = RankSaves(Options(threads=1), saves)
    for new in begun:
        again.write(again.shard(new, {"w": 1}))
        again.commit(new)
    assert again.begin(*destination_of(tmp_path / "iter_0000008")).saved.step == 8
    assert bitsnap.Store(tmp_path / "bitsnap", read_only=True).steps() == [5, 6, 7]


def test_a_checkpoint_beside_folders_of_iterations_keeps_its_step(tmp_path: Path) -> None:
    saved(tmp_path)  # its run lies in it, where that of the iterations lies, too
    saved(tmp_path / "iter_0000001")
    shutil.rmtree(tmp_path / "iter_0000001")
    saved(tmp_path / "iter_0000002")
    assert bitsnap.Store(tmp_path / "bitsnap", read_only=True).steps() == [0, 2]
    assert step_of(tmp_path) == StepOfRun(tmp_path / "bitsnap", 0)


def test_a_folder_that_torch_dist_saved_over_is_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000007"
    folder.mkdir()
    (folder / ".metadata").write_text("of torch_dist")
    (folder / "__0_0.distcp").write_text("of torch_dist")
    saved(folder)
    assert is_ours(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["bitsnap-reference.json", "metadata.json"]
    (folder / ".metadata").write_text("of torch_dist")
    later = (folder / "bitsnap-reference.json").stat().st_mtime_ns + 1_000_000_000
    os.utime(folder / ".metadata", ns=(later, later))
    assert not is_ours(folder)


def test_numbers_of_adam_come_from_all_groups_or_not_at_all() -> None:
    group = {"betas": (0.9, 0.95), "eps": 1e-8, "step": 4, "lr": 0.1}
    assert adam_values({"optimizer": {"param_groups": [group, {**group, "lr": 0.2}]}}) == ((0.9, 0.95), 1e-8, 4)
    assert adam_values([{"param_groups": [group]}, {"param_groups": [{**group, "eps": 1e-6}]}]) is None
    assert adam_values({"param_groups": []}) is None


class StockSave:
    def save(self, state: Any, checkpoint_dir: Any) -> str:
        return "stock"

    def async_save(self, state: Any, checkpoint_dir: Any, async_strategy: str = "nvrx") -> str:
        return "stock"


class StockLoad:
    def load(self, state: Any, checkpoint_dir: Any, async_strategy: str = "mcore") -> str:
        return "stock"

    def load_tensors_metadata(self, checkpoint_dir: Any, metadata: Any = None) -> str:
        return "stock"

    def load_sharded_metadata(self, checkpoint_dir: Any) -> str:
        return "stock"

    def remove_sharded_tensors(self, checkpoint_dir: str, key_prefix: str) -> str:
        return "stock"


def modules_of(version: str) -> dict[str, Any]:
    """Modules with the interfaces of Megatron-core 0.17 or 0.19, which need a newer Python than this one may be."""
    package = "megatron.core.dist_checkpointing"
    names = ("", ".mapping", ".dict_utils", ".serialization", ".strategies", ".strategies.torch", ".strategies.common")
    found: dict[str, Any] = {package + name: types.ModuleType(package + name) for name in names}
    found |= {name: types.ModuleType(name) for name in ("megatron", "megatron.core")}
    for module in found.values():
        module.__path__ = []
    torch_dist: Any = found[f"{package}.strategies.torch"]
    torch_dist.TorchDistSaveShardedStrategy = type("Save", (), dict(vars(StockSave)))
    torch_dist.TorchDistLoadShardedStrategy = type("Load", (), dict(vars(StockLoad)))
    torch_dist.get_async_strategy = lambda name: (name, {"AsyncRequest": f"request of {name}"})
    mapping: Any = found[f"{package}.mapping"]
    mapping.ShardedTensor, mapping.ShardedObject = type("T", (), {}), type("O", (), {})
    utils: Any = found[f"{package}.dict_utils"]
    utils.nested_values = utils.dict_list_map_outplace = lambda *args: []
    serialization: Any = found[f"{package}.serialization"]
    serialization.save_config = lambda config, folder: saved_configs.append(folder)
    if version == "0.17":
        for module in (serialization, found[f"{package}.strategies.common"]):
            module.save_common = lambda state, folder: saved_commons.append(state)
            module.load_common = lambda folder: "stock"
    else:
        for module in (serialization, found[package]):
            module.load_common_state_dict = lambda folder: "stock"
    return found


saved_configs: list[Any] = []
saved_commons: list[Any] = []


@pytest.mark.parametrize("version", ["0.17", "0.19"])
def test_newer_interfaces_are_found_and_given_back(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = modules_of(version)
    for name in [name for name in sys.modules if name.split(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    versions.core.cache_clear()
    core: Any = versions.core()
    before = dict(vars(core.save_strategy)), dict(vars(core.load_strategy))
    bitsnap.megatron.use()
    try:
        assert core.save_strategy.save is not before[0]["save"]
        assert core.save_strategy.async_save is not before[0]["async_save"]
        loader = core.load_strategy()
        assert loader.load({}, tmp_path, async_strategy="nvrx") == "stock"
        assert loader.load_sharded_metadata(checkpoint_dir=tmp_path) == "stock"
        assert core.async_request("nvrx") == "request of nvrx"
        assert core.optimizer is None
        saved(tmp_path / "iter_0000001")
        with pytest.raises(bitsnap.CorruptError):  # it has nothing of Megatron
            loader.load({}, tmp_path / "iter_0000001", "nvrx")
        with pytest.raises(bitsnap.UnsupportedError, match="cannot be removed"):
            loader.remove_sharded_tensors(str(tmp_path / "iter_0000001"), "x")
        load = core.serialization.load_common if version == "0.17" else core.serialization.load_common_state_dict
        assert load(tmp_path) == "stock"
        with pytest.raises(bitsnap.CorruptError):
            load(tmp_path / "iter_0000001")
        if version == "0.17":
            core.serialization.save_common({"a": 1}, tmp_path)
            assert not saved_commons
            core.serialization.save_config(None, tmp_path)  # of another strategy: the common state is not lost
            assert saved_commons == [{"a": 1}]
    finally:
        bitsnap.megatron.undo()
        versions.core.cache_clear()
    assert (dict(vars(core.save_strategy)), dict(vars(core.load_strategy))) == before
