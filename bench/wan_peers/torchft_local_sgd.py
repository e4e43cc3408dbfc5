"""torchft's LocalSGD: the ranks' weights are averaged every ``--sync-every`` steps."""

from bench.wan_peers import common
from bench.wan_peers.torchft_common import managed
from torchft.local_sgd import LocalSGD


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--sync-every", type=int, default=20, help="training steps")
    options = parser.parse_args()
    run, model = common.begin("torchft-local-sgd", options)
    inner = common.adamw(common.groups(model, run.training), run.training)
    with managed(run) as manager:
        with LocalSGD(manager, model, inner, options.sync_every):
            common.train(run, model, inner)
        common.finish(run, model)


if __name__ == "__main__":
    main()
