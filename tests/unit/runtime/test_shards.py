"""What a rank of a site speaks for; several ranks are in ``wan/test_cut_sites.py``."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gridloom.base.errors import InputError
from gridloom.runtime.shards import Held, Shards, clip, held

TWO_SITES = {"north": 2, "south": 2}


@pytest.fixture
def world() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))


def values(tensors: list[Tensor]) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in tensors]


def test_one_rank_owns_all_that_is_trained_where_it_lies() -> None:
    model = net()
    weights = list(model.parameters())
    weights[1].requires_grad = False
    found = held(model, 1)
    assert (found.alike, found.has_gradients, found.spread) == (True, True, None)
    assert [one.numel() for one in found.owned] == [24, 12, 2]
    found.owned[1].fill_(7)
    assert weights[2].flatten().tolist() == [7.0] * 12


def test_what_a_library_says_is_taken_as_it_is() -> None:
    given = Shards([torch.zeros(3)], lambda: None)
    found = held(given, 2)
    assert (found.owned, found.spread) == (given.owned, given.spread)
    assert (found.alike, found.has_gradients) == (False, False)


def test_a_layout_tells_sizes_and_not_numbers() -> None:
    zeros, ones, more = (
        Held([tensor], is_all=True) for tensor in (torch.zeros(3), torch.ones(3), torch.zeros(4))
    )
    assert zeros.layout() == ones.layout() != more.layout()
    assert Held([torch.zeros(3)], alike=True).layout() == []


def test_boxes_tell_more_than_sizes() -> None:
    one, two = (Held([torch.zeros(3)], boxes=[("weight", place)], is_all=True) for place in (0, 3))
    assert one.layout() != two.layout()


@pytest.mark.parametrize(
    ("part", "kind", "sizes", "problem"),
    [
        (Held([torch.zeros(3, dtype=torch.int64)]), "outer", TWO_SITES, "no run of floating"),
        (Held([torch.zeros(2, 3).T]), "outer", TWO_SITES, "no run of floating"),
        (Held([]), "outer", {"north": 2, "south": 3}, "north 2, south 3"),
        (Held([]), "every_step", TWO_SITES, "take kind outer"),
        (Held([]), "accumulated", {"north": 2}, "take kind outer"),
    ],
)
def test_what_cannot_be_one_model(
    part: Held, kind: str, sizes: dict[str, int], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        part.check(kind, sizes)


def test_one_site_exchanges_nothing_and_sites_with_copies_may_differ() -> None:
    Held([torch.zeros(2, 3).T]).check("every_step", {"north": 2})
    Held([], alike=True).check("outer", {"north": 2, "south": 3})


def test_copies_that_nothing_keeps_equal_are_refused() -> None:
    with pytest.raises(InputError, match=r"0\.weight is a plain tensor .* DistributedDataParallel"):
        held(net(), 2)


def test_an_engine_whose_weights_are_elsewhere_is_refused() -> None:
    engine = type("DeepSpeedEngine", (nn.Module,), {"__module__": "deepspeed.runtime.engine"})
    with pytest.raises(InputError, match=r"give gl\.sync gl\.Shards"):
        held(engine(), 1)


@pytest.mark.usefixtures("world")
def test_the_first_rank_owns_copies_that_are_kept_equal() -> None:
    model = DistributedDataParallel(net())
    found = held(model, 2)
    assert (found.alike, found.has_gradients) == (True, False)
    assert values(list(found.owned)) == values([p.detach() for p in model.parameters()])


@pytest.mark.usefixtures("world")
def test_gathered_weights_are_given_up_when_they_have_changed() -> None:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    found = held(model, 1)
    inputs = torch.ones(1, 4)
    with torch.no_grad():
        before = model(inputs)
        for one in found.owned:
            one.zero_()
        assert found.spread is not None
        found.spread()
        after = model(inputs)
    assert before.abs().max() > 0
    assert after.abs().max() == 0


@pytest.mark.usefixtures("world")
def test_a_part_of_the_ranks_is_refused() -> None:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(InputError, match=r"0\.weight is spread over 1 of 2 ranks"):
        held(model, 2)


@pytest.mark.usefixtures("world")
def test_a_part_of_the_parameters_is_refused() -> None:
    model = net()
    fully_shard(model[1], mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(InputError, match=r"0\.weight is a plain tensor in a model of distributed"):
        held(model, 1)


@pytest.mark.usefixtures("world")
def test_distributed_gradients_are_clipped_as_plain_ones() -> None:
    torch.manual_seed(1)
    plain = net()
    torch.manual_seed(1)
    spread = net()
    fully_shard(spread, mesh=init_device_mesh("cpu", (1,)))
    norms = []
    for model in (plain, spread):
        model(torch.ones(3, 4)).square().sum().backward()
        norms.append(clip(list(model.parameters()), 0.5))
    assert norms[0] == pytest.approx(norms[1])
    for one, two in zip(plain.parameters(), spread.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        assert torch.allclose(one.grad, two.grad.full_tensor())  # type: ignore[attr-defined]


def test_gradients_that_a_library_keeps_are_not_clipped() -> None:
    with pytest.raises(InputError, match="their library's to clip"):
        clip([], 1.0)
