"""PyTorch's DistributedDataParallel, plain or with one of its communication hooks.

``--hook fp16`` sends gradients as fp16; ``--hook powersgd`` sends two thin factors of each matrix
(Vogels et al., 2019) after ``--powersgd-start`` steps of plain averaging.
"""

import torch.distributed as dist
from bench.wan_peers import common
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

WHOLE_MB = 1024


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--hook", choices=("none", "fp16", "powersgd"), default="none")
    parser.add_argument("--powersgd-rank", type=int, default=4)
    parser.add_argument("--powersgd-start", type=int, default=10, help="2 or later")
    options = parser.parse_args()
    name = "ddp" if options.hook == "none" else f"ddp-{options.hook}"
    run, model = common.begin(name, options)
    dist.init_process_group(
        "gloo", store=dist.PrefixStore("ddp", run.store), rank=run.rank, world_size=run.world
    )
    # The hook of PowerSGD issues collectives from callbacks: over gloo, with more than one bucket,
    # ranks issue them in different orders, and hang
    bucket_mb = WHOLE_MB if options.hook == "powersgd" else None
    wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    if options.hook == "fp16":
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif options.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=options.powersgd_rank,
            start_powerSGD_iter=options.powersgd_start,
        )
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    common.train(run, wrapped, common.adamw(common.groups(model, run.training), run.training))
    common.finish(run, model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
