"""torchft's DiLoCo: every ``--sync-every`` steps an outer step of SGD with Nesterov momentum.

With ``--fragments`` more than 1 it streams (Douillard et al., 2025): each fragment is shared once
in ``--sync-every`` steps, ``--delay`` steps before its average is applied, and the average is mixed
with what the rank has learnt since (``--alpha`` of the latter).
"""

import torch
from bench.wan_peers import common
from bench.wan_peers.torchft_common import managed
from torch import nn
from torchft.local_sgd import DiLoCo

OUTER_LEARNING_RATE, OUTER_MOMENTUM = 0.7, 0.9  # Douillard et al., 2023, section 3


def fragments(model: common.Loss, count: int) -> list[nn.Module]:
    """Return the model in parts of as many layers; the first has what is outside the layers."""
    gpt, layers = model.gpt, list(model.gpt.blocks.children())
    if len(layers) % count:
        raise SystemExit(f"--fragments is {count}, must divide the {len(layers)} layers")
    size = len(layers) // count
    parts = [layers[start : start + size] for start in range(0, len(layers), size)]
    parts[0] = [gpt.embedding, gpt.norm, *parts[0]]
    return [nn.ModuleList(part) for part in parts]


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--sync-every", type=int, default=20, help="training steps")
    parser.add_argument("--fragments", type=int, default=1)
    parser.add_argument("--delay", type=int, default=0, help="training steps")
    parser.add_argument("--alpha", type=float, default=0.0)
    options = parser.parse_args()
    streams = options.fragments > 1
    run, model = common.begin(f"torchft-{'streaming-' if streams else ''}diloco", options)
    inner = common.adamw(common.groups(model, run.training), run.training)
    parts = fragments(model, options.fragments)
    outer = [
        torch.optim.SGD(
            part.parameters(), lr=OUTER_LEARNING_RATE, momentum=OUTER_MOMENTUM, nesterov=True
        )
        for part in parts
    ]
    with managed(run) as manager:
        with DiLoCo(
            manager,
            parts,
            inner,
            outer,
            sync_every=options.sync_every,
            use_bucketization=True,
            fragment_sync_delay=options.delay,
            fragment_update_alpha=options.alpha,
        ):
            common.train(run, model, inner)
        common.finish(run, model)


if __name__ == "__main__":
    main()
