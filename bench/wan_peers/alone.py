"""No peer: every rank trains for itself and tells nobody. What the ranks can do without a WAN."""

from bench.wan_peers import common


def main() -> None:
    run, model = common.begin("alone", common.arguments(__doc__).parse_args())
    common.train(run, model, common.adamw(common.groups(model, run.training), run.training))
    common.finish(run, model)


if __name__ == "__main__":
    main()
