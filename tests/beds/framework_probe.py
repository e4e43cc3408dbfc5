"""Hands settings to a framework's own parser, in an environment of its own, and says what it read.

``framework_probe.py <framework>`` reads a list of cases as JSON on standard input, and writes what
was understood of each as JSON on the last line of standard output.
"""

import dataclasses
import importlib.util
import json
import os
import sys
import tempfile
import types
from importlib import import_module as load
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"


def deepspeed(case: dict[str, Any]) -> dict[str, Any]:
    runtime: Any = load("deepspeed.runtime.config")
    validate_autoep_config = load("deepspeed.module_inject.auto_ep_config").validate_autoep_config

    config, ranks, data = case["config"], case["ranks"], case["data"]
    # What the launcher would say of the processes
    runtime.dist.get_rank = lambda: 0
    runtime.dist.get_world_size = lambda *_: ranks
    mpu = types.SimpleNamespace(get_data_parallel_world_size=lambda: data)
    tensor = config.get("tensor_parallel", {}).get("autotp_size", 1)
    read = runtime.DeepSpeedConfig(config, mpu=mpu if tensor > 1 else None)
    zero = read.zero_config
    validate_autoep_config(
        read.expert_parallel_config,
        world_size=ranks,
        pp_size=1,
        tp_size=tensor,
        sp_size=config.get("sequence_parallel_size", 1),
        zero_stage=int(zero.stage),
        zero_offload_optimizer=zero.offload_optimizer is not None,
        zero_offload_param=zero.offload_param is not None,
    )
    return {
        "data": read.world_size,
        "global_batch": read.train_batch_size,
        "micro_batch": read.train_micro_batch_size_per_gpu,
        "steps": read.gradient_accumulation_steps,
        "zero": int(zero.stage),
        "overlap": zero.overlap_comm,
        "prefetch": zero.prefetch_bucket_size > 0,
        "offload": [zero.offload_optimizer is not None, zero.offload_param is not None],
        "bf16": read.bfloat16_config.enabled,
        "fp16": read.float16_config.enabled,
        "pure": read.bfloat16_config.bf16_optimizer_states,
        "gradients": read.grad_accum_dtype,
        "optimizer": read.optimizer_name.lower(),
        "tensor": read.tensor_parallel_config.autotp_size,
        "expert": read.expert_parallel_config.autoep_size,
        "inputs": bool(read.activation_checkpointing_config.cpu_checkpointing),
    }


def accelerate(case: dict[str, Any]) -> dict[str, Any]:
    parallelism_config: Any = load("accelerate.parallelism_config")
    utils: Any = load("accelerate.utils")
    load_config_from_file = load("accelerate.commands.config.config_args").load_config_from_file
    _validate_launch_command = load("accelerate.commands.launch")._validate_launch_command
    launch_command_parser = load("accelerate.commands.launch").launch_command_parser
    prepare_multi_gpu_env = load("accelerate.utils.launch").prepare_multi_gpu_env

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "config.yaml")
        Path(path).write_text(case["text"], encoding="utf-8")
        config = load_config_from_file(path)
        words = ["--config_file", path, "train.py"]
        parser = launch_command_parser()
        args, *_ = _validate_launch_command(parser.parse_args(words))
    found = {
        "processes": config.num_processes,
        "machines": config.num_machines,
        "kind": config.distributed_type.value,
        "precision": args.mixed_precision,
    }
    if args.mixed_precision == "fp8":  # its kernels are not installed here
        found["precision"] = f"fp8 {args.fp8_backend}"
        return found
    if not args.use_fsdp:
        return found
    os.environ.update(prepare_multi_gpu_env(args))
    plugin, sizes = utils.FullyShardedDataParallelPlugin(), parallelism_config.ParallelismConfig()
    assert sizes.total_size == config.num_processes
    return found | {
        "reshard": plugin.reshard_after_forward,
        "version": plugin.fsdp_version,
        "offload": type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy",
        "recompute": plugin.activation_checkpointing,
        "inputs": plugin.activation_checkpointing_offload,
        "sizes": [sizes.dp_replicate_size, sizes.dp_shard_size, sizes.tp_size, sizes.cp_size],
    }


def torchtitan_toml(case: dict[str, Any]) -> dict[str, Any]:
    _without_models()
    manager: Any = load("torchtitan.config.manager")
    parallel_dims: Any = load("torchtitan.distributed.parallel_dims")
    get_schedule_class = load("torch.distributed.pipelining.schedules").get_schedule_class

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(case["text"], encoding="utf-8")
        config = manager.ConfigManager().parse_args(["--job.config_file", str(path)])
    part = config.parallelism
    dims = parallel_dims.ParallelDims(
        dp_replicate=part.data_parallel_replicate_degree,
        dp_shard=part.data_parallel_shard_degree,
        cp=part.context_parallel_degree,
        tp=part.tensor_parallel_degree,
        pp=part.pipeline_parallel_degree,
        ep=part.expert_parallel_degree,
        etp=part.expert_tensor_parallel_degree,
        world_size=case["ranks"],
    )
    assert case["sequence"] % dims.seq_len_divisor == 0
    get_schedule_class(part.pipeline_parallel_schedule)
    return _titan(config) | {
        "async": part.enable_async_tensor_parallel,
        "recompute": [
            config.activation_checkpoint.mode,
            config.activation_checkpoint.selective_ac_option,
        ],
        "converters": config.model.converters,
        "recipe": config.quantize.linear.float8.recipe_name,
        "modules": part.module_fqns_per_model_part,
    }


def torchtitan_arguments(case: dict[str, Any]) -> dict[str, Any]:
    _without_models()
    configs: Any = load("torchtitan.config.configs")
    manager: Any = load("torchtitan.config.manager")
    activation_checkpoint: Any = load("torchtitan.distributed.activation_checkpoint")
    parallel_dims: Any = load("torchtitan.distributed.parallel_dims")

    # Those sections of `Trainer.Config` that do not need a model
    sections = {
        "hf_assets_path": (str, "."),
        "training": (configs.TrainingConfig, configs.TrainingConfig()),
        "parallelism": (configs.ParallelismConfig, configs.ParallelismConfig()),
        "compile": (configs.CompileConfig, configs.CompileConfig()),
        "activation_checkpoint": (
            activation_checkpoint.ActivationCheckpointingConfig,
            activation_checkpoint.SelectiveAC.Config(),
        ),
    }
    fields = [(name, kind, field_of(default)) for name, (kind, default) in sections.items()]
    registry: Any = types.ModuleType("probe_registry")
    registry.probe = dataclasses.make_dataclass("Config", fields)
    sys.modules["probe_registry"] = registry
    words = ["--module", "probe_registry", "--config", "probe", *case["words"]]
    config = manager.ConfigManager().parse_args(words)
    part = config.parallelism
    parallel_dims.ParallelDims(
        dp_replicate=part.data_parallel_replicate_degree,
        dp_shard=part.data_parallel_shard_degree,
        cp=part.context_parallel_degree,
        tp=part.tensor_parallel_degree,
        pp=part.pipeline_parallel_degree,
        ep=part.expert_parallel_degree,
        world_size=case["ranks"],
    )
    policy = config.activation_checkpoint
    return _titan(config) | {
        "async": config.compile.enable_async_tensor_parallel,
        "recompute": type(policy).__qualname__ if policy else None,
        "stage": part.pipeline_parallel_layers_per_stage,
    }


def field_of(default: Any) -> Any:
    return dataclasses.field(default_factory=lambda: default)


def _titan(config: Any) -> dict[str, Any]:
    part, training = config.parallelism, config.training
    return {
        "degrees": [
            part.data_parallel_replicate_degree,
            part.data_parallel_shard_degree,
            part.context_parallel_degree,
            part.tensor_parallel_degree,
            part.pipeline_parallel_degree,
            part.expert_parallel_degree,
        ],
        "schedule": part.pipeline_parallel_schedule,
        "reshard": part.fsdp_reshard_after_forward,
        "batches": [
            training.global_batch_size,
            training.local_batch_size,
            part.pipeline_parallel_microbatch_size,
        ],
        "sequence": training.seq_len,
        "steps": training.steps,
        "precision": [training.mixed_precision_param, training.dtype],
        "offload": training.enable_cpu_offload,
        "compiled": config.compile.components if config.compile.enable else [],
    }


def _without_models() -> None:
    """Let torchtitan's settings be read without its models, whose kernels need a GPU's compiler."""
    if "torchtitan" in sys.modules:
        return
    found = importlib.util.find_spec("torchtitan")
    assert found is not None
    assert found.submodule_search_locations
    bare = types.ModuleType("torchtitan")
    bare.__path__ = list(found.submodule_search_locations)
    sys.modules["torchtitan"] = bare


def megatron(case: dict[str, Any]) -> dict[str, Any]:
    """Build Megatron-Core's own configurations, as `core_transformer_config_from_args` does."""
    distributed: Any = load("megatron.core.distributed")
    optimizer: Any = load("megatron.core.optimizer")
    transformer: Any = load("megatron.core.transformer")
    version: Any = load("packaging.version")

    utils: Any = load("megatron.core.utils")
    utils._te_version = version.Version("2.9.0")  # Transformer Engine needs a GPU
    given = _values(case["words"])
    latent = "multi_latent_attention" in given
    kinds = {
        "model": transformer.MLATransformerConfig if latent else transformer.TransformerConfig,
        "optimizer": optimizer.OptimizerConfig,
        "sharding": distributed.DistributedDataParallelConfig,
    }
    built: dict[str, Any] = {}
    known: set[str] = set()
    for name, kind in kinds.items():
        fields = {field.name for field in dataclasses.fields(kind)}
        values = {key: value for key, value in given.items() if key in fields}
        known |= set(values)
        built[name] = kind(**values)
    model, pipeline = built["model"], case["pipeline"]
    layout = model.pipeline_model_parallel_layout
    if layout is not None:
        layout.validate_layer_layout(model.num_layers, model.mtp_num_layers)
        held = [len([kind for kind in row[0] if kind.name == "decoder"]) for row in layout.layout]
    else:
        first = model.num_layers_in_first_pipeline_stage
        last = model.num_layers_in_last_pipeline_stage
        each = (model.num_layers - (first or 0) - (last or 0)) // max(
            1, pipeline - bool(first) - bool(last)
        )
        held = [first or each, *[each] * (pipeline - 2), last or each][:pipeline]
    return {
        "layers": held,
        "chunks": model.virtual_pipeline_model_parallel_size or 1,
        "heads": [model.num_attention_heads, model.num_query_groups, model.kv_channels],
        "widths": [model.hidden_size, model.ffn_hidden_size],
        "experts": model.num_moe_experts or 0,
        "ranks": [
            model.tensor_model_parallel_size,
            model.pipeline_model_parallel_size,
            model.context_parallel_size,
            model.expert_model_parallel_size,
        ],
        "recompute": [model.recompute_granularity, model.recompute_method],
        "sharding": built["sharding"].data_parallel_sharding_strategy,
        "unknown": sorted(set(given) - known),
    }


_RENAMED = {
    "num_experts": "num_moe_experts",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "fp8_format": "fp8",
    "swiglu": "gated_linear_unit",
    "cpu_offloading_num_layers": "cpu_offloading_num_layers",
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion",
    "disable_bias_linear": "add_bias_linear",
    "overlap_param_gather": "overlap_param_gather",
}
"""Arguments whose field in Megatron-Core has another name."""


def _values(words: list[str]) -> dict[str, Any]:
    enums: Any = load("megatron.core.transformer.enums")
    torch = load("torch")

    given: dict[str, Any] = {}
    last = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            last = _RENAMED.get(name, name)
            given[last] = not name.startswith(("no_", "disable_"))
        else:
            given[last] = _typed(word)
    given["bf16"] = given.get("bf16", False)
    if given["bf16"] or given.get("fp16"):
        half = torch.bfloat16 if given["bf16"] else torch.float16
        given |= {"params_dtype": half, "pipeline_dtype": half}
    given.setdefault("pipeline_dtype", torch.float32)
    given["attention_backend"] = enums.AttnBackend[given["attention_backend"]]
    if "window_size" in given:
        given["window_size"] = tuple(int(side) for side in given["window_size"].split(","))
    if "moe_layer_freq" in given and not isinstance(given["moe_layer_freq"], int):
        given["moe_layer_freq"] = eval(given["moe_layer_freq"])
    for name in ("exp_avg_dtype", "exp_avg_sq_dtype"):
        if name in given:
            given[name] = {"bf16": torch.bfloat16, "fp8": torch.uint8}[given[name]]
    if given.get("cpu_offloading_num_layers"):
        given["cpu_offloading"] = True
    if given.get("gated_linear_unit"):
        given["activation_func"] = torch.nn.functional.silu
    given["bias_activation_fusion"] = given.get("add_bias_linear", True) is True
    return given


def _typed(word: str) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


PROBES = {
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    "megatron": megatron,
    "torchtitan-arguments": torchtitan_arguments,
    "torchtitan-toml": torchtitan_toml,
}


def main() -> None:
    probe = PROBES[sys.argv[1]]
    found: list[dict[str, Any]] = []
    for case in json.load(sys.stdin):
        kept = dict(os.environ)
        try:
            found.append(probe(case))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a parser raises is its word
            found.append({"refused": f"{type(error).__name__}: {error}"})
        os.environ.clear()
        os.environ.update(kept)
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
