"""hivemind with local updates: ranks step by themselves, and average weights in the background.

A round is due when all ranks together have seen ``--sync-every`` training steps' samples. What
was averaged is applied as a difference, so that no local step is lost; numbers travel as fp16, as
its guide advises.
"""

import hivemind
from bench.wan_peers import common


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--sync-every", type=int, default=20, help="training steps, about")
    parser.add_argument(
        "--matchmaking", type=float, default=3.0, help="seconds: its guide's 3 to 5"
    )
    options = parser.parse_args()
    run, model = common.begin("hivemind-local", options)
    here = [f"/ip4/{run.address}/tcp/0"]
    if run.rank == 0:
        dht = hivemind.DHT(host_maddrs=here, start=True)
        run.store.set("peers", "\n".join(str(one) for one in dht.get_visible_maddrs()))
    else:
        known = run.store.get("peers").decode().split("\n")
        dht = hivemind.DHT(host_maddrs=here, initial_peers=known, start=True)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="gpt",
        batch_size_per_step=common.SEQUENCES,
        target_batch_size=common.SEQUENCES * run.world * options.sync_every,
        params=common.groups(model, run.training),
        optimizer=lambda groups: common.adamw(groups, run.training),
        use_local_updates=True,
        delay_state_averaging=True,
        state_averaging_compression=hivemind.compression.Float16Compression(),
        matchmaking_time=options.matchmaking,
        averaging_timeout=60.0,
        averager_opts={"request_timeout": options.matchmaking / 3},  # as its warning advises
    )
    run.meet("hivemind")
    common.train(run, model, optimizer, inner=optimizer.opt)
    common.finish(run, model)
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
