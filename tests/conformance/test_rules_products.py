"""Contract 7 and 3.4: products that an imitated device stands for, and what they refuse, and why."""

import json

import pytest
from harness.peer import PARAM_INVALID, SUCCESS, UNSUPPORTED

A2, A3, PR, DT = "Ascend910B3", "Ascend910_9391", "Ascend950PR_9589", "Ascend950DT_9571"


@pytest.fixture(scope="module")
def labs(make_lab):
    made = {}

    def of(product):
        if product not in made:
            made[product] = make_lab({"devices": {"sim": {"product": product, "product_limits": True}}})
        return made[product]

    return of


def desc(*protocols):
    return {"GlobalResourceConfig": json.dumps({"comm_resource_config.protocol_desc": list(protocols)})}


# Transfers between memory of every pair of types: what comes back.
_MATRIX = """
here = hixl.Hixl()
there = hixl.Hixl()
name = free_name()
statuses = [here.initialize('127.0.0.1:0', ours), there.initialize(name, theirs)]
engines.extend((here, there))
assert statuses == [0, 0], hixl.last_error()
connected = here.connect(name, 5000)
outcome = {'connect': connected, 'why': hixl.last_error()}
if connected == 0:
    for local_kind, local_type in (('d', DEVICE), ('h', HOST)):
        for remote_kind, remote_type in (('d', DEVICE), ('h', HOST)):
            local, remote = memory(64), memory(64, 7)
            registered = [here.register_mem(hixl.MemDesc(local, 64), local_type)[0],
                          there.register_mem(hixl.MemDesc(remote, 64), remote_type)[0]]
            both = local_kind + remote_kind
            if registered != [0, 0]:
                outcome[both] = max(registered)
                continue
            outcome[both] = here.transfer_sync(name, READ, [piece(local, remote, 64)])
            if outcome[both] == 0:
                assert content(local, 64) == bytes([7]) * 64
            else:
                outcome['why ' + both] = hixl.last_error()
outcome
"""


def matrix(lab, ours, theirs=None):
    outcome = lab.run(_MATRIX, ours=ours, theirs=ours if theirs is None else theirs)
    lab.clean()
    return outcome


ALL = {"dd", "dh", "hd", "hh"}


@pytest.mark.parametrize("product, options, allowed", [
    (A2, {}, {"dd"}),
    (A2, desc("hccs:device"), {"dd"}),
    (A2, desc("roce:device"), ALL),
    (A3, {}, {"dd", "hd"}),
    (A3, desc("hccs:device"), {"dd", "hd"}),
    (A3, desc("roce:device"), ALL),
    (A3, {"EnableUseFabricMem": "1"}, ALL),
    (PR, {}, ALL),
    (PR, desc("ub_ctp:device"), {"dd"}),
    (PR, desc("ub_ctp:host"), {"hh"}),
    (PR, desc("ub_ctp:device", "ub_ctp:host"), ALL),
    (PR, desc("uboe:device"), {"dd"}),
    (DT, desc("ub_rtp:device"), {"dd"}),
    (DT, desc("roce:host"), ALL),
])
def test_rule_7_placements_ok(labs, product, options, allowed):
    outcome = matrix(labs(product), options)
    assert outcome["connect"] == SUCCESS, outcome
    assert {pair for pair in ALL if outcome[pair] == SUCCESS} == allowed, outcome
    assert all(outcome[pair] == UNSUPPORTED for pair in ALL - allowed), outcome


def test_rule_7_placements_bad(labs):
    why = matrix(labs(A2), {})["why hd"]
    for word in ("UNSUPPORTED", A2, "hccs:device", "local host", "roce:device"):
        assert word in why, why


def test_rule_7_without_limits_ok(lab):
    # The product's name alone refuses nothing.
    outcome = matrix(lab, desc("hccs:device"))
    assert {outcome[pair] for pair in ALL} == {SUCCESS}


PROTOCOLS = {
    A2: {"hccs:device", "roce:device"},
    A3: {"hccs:device", "roce:device"},
    PR: {"uboe:device", "ub_rtp:device", "ub_ctp:device", "ub_ctp:host", "roce:host"},
    DT: {"uboe:device", "ub_rtp:device", "ub_ctp:device", "ub_ctp:host", "roce:host"},
}
EVERY = set.union(*PROTOCOLS.values())


@pytest.mark.parametrize("product", PROTOCOLS)
def test_rule_7_protocols_ok(labs, product):
    for protocol in sorted(PROTOCOLS[product]):
        assert labs(product).run("initialize(o)", o=desc(protocol)) == SUCCESS, protocol


@pytest.mark.parametrize("product", PROTOCOLS)
def test_rule_7_protocols_bad(labs, product):
    lab = labs(product)
    for protocol in sorted(EVERY - PROTOCOLS[product]):
        assert lab.run("initialize(o)", o=desc(protocol)) == PARAM_INVALID, protocol
        assert product in lab.run("hixl.last_error()") and protocol in lab.run("hixl.last_error()")


def test_rule_7_fabric_ok(labs):
    assert labs(A3).run("initialize({'EnableUseFabricMem': '1'})") == SUCCESS


@pytest.mark.parametrize("product", [A2, PR, DT])
def test_rule_7_fabric_bad(labs, product):
    assert labs(product).run("initialize({'EnableUseFabricMem': '1'})") == UNSUPPORTED
    assert "fabric memory" in labs(product).run("hixl.last_error()")


def test_rule_7_rank_tables_ok(labs):
    for product in (A2, A3):
        assert labs(product).run("initialize({'LocalCommRes': '{\"version\":\"1.0\"}'})") == SUCCESS


def test_rule_7_rank_tables_bad(labs):
    assert labs(PR).run("initialize({'LocalCommRes': '{\"version\":\"1.0\"}'})") == PARAM_INVALID


def test_rule_7_registration_limit_ok(labs):
    assert labs(A2).run("engine().register_mem(hixl.MemDesc(1 << 40, 50 << 30), DEVICE)[0]") == SUCCESS
    labs(A2).clean()


def test_rule_7_registration_limit_bad(labs):
    assert labs(A2).run("""
e = engine()
first = e.register_mem(hixl.MemDesc(1 << 40, 50 << 30), DEVICE)[0]
[first, e.register_mem(hixl.MemDesc(1 << 20, 1), DEVICE)[0] != 0]
""") == [SUCCESS, True]
    assert "HIXL_001001" in labs(A2).run("hixl.last_error()")
    labs(A2).clean()


def test_rule_7_ub_registration_bad(labs):
    assert labs(PR).run("engine(o).register_mem(hixl.MemDesc(4096, 4096), HOST)",
                        o=desc("ub_ctp:device")) == [UNSUPPORTED, 0]
    labs(PR).clean()


# --- which protocol joins two engines ---------------------------------------------------------------

def endpoint(protocol):
    name, placement = protocol.split(":")
    ids = {"roce": "10.0.0.1", "uboe": "10.0.0.1", "hccs": "7"}
    return {"protocol": name, "placement": placement, "comm_id": ids.get(name, "0" * 32)}


def comm_res(pod, *protocols):
    return {"LocalCommRes": json.dumps({"version": "1.3", "net_instance_id": pod,
                                        "endpoint_list": [endpoint(p) for p in protocols]})}


@pytest.mark.parametrize("pod, ours, theirs, expected", [
    ("a", ["ub_ctp:device", "uboe:device"], ["uboe:device", "ub_ctp:device"], "ub_ctp"),
    ("b", ["ub_ctp:device", "uboe:device"], ["uboe:device", "ub_ctp:device"], "uboe:device"),
    ("b", ["ub_rtp:device", "roce:host"], ["roce:host", "ub_rtp:device"], "ub_rtp:device"),
    ("b", ["ub_ctp:device", "roce:host"], ["roce:host", "ub_ctp:device"], "roce:host"),
])
def test_rule_3_4_match_ok(labs, pod, ours, theirs, expected):
    lab = labs(PR)
    name = lab.run("""
here, name = listening(ours)
there, other = listening(theirs)
assert here.connect(other) == 0, hixl.last_error()
name
""", ours=comm_res("a", *ours), theirs=comm_res(pod, *theirs))
    listing = json.loads(lab.node.ctl("--json", "engines").stdout)
    engine = next(e for e in listing["engines"] if e["engine_id"] == name)
    assert [c["protocol"] for c in engine["channels"] if c["initiator"]] == [expected]
    lab.clean()


@pytest.mark.parametrize("product, pod, ours, theirs", [
    (A2, "a", ["hccs:device"], ["roce:device"]),
    (A2, "b", ["hccs:device"], ["hccs:device"]),
    (PR, "b", ["ub_ctp:device"], ["ub_ctp:device"]),
    (PR, "a", ["uboe:device"], ["roce:host"]),
])
def test_rule_3_4_match_bad(labs, product, pod, ours, theirs):
    lab = labs(product)
    assert lab.run("here = engine(ours)\nthere, name = listening(theirs)\n[here.connect(name), hixl.last_error()]",
                   ours=comm_res("a", *ours), theirs=comm_res(pod, *theirs))[0] == PARAM_INVALID
    assert "no protocol in common" in lab.run("hixl.last_error()")
    lab.clean()


def test_rule_3_4_match_between_nodes_bad(make_lab):
    # Two daemons: what each side's engine has goes with the connection. Their pods differ, so HCCS is out.
    config = {"devices": {"sim": {"product": A2, "product_limits": True}}}
    here, there = make_lab(config), make_lab(config)
    for ours, status in ((desc("hccs:device"), PARAM_INVALID), (desc("roce:device"), SUCCESS)):
        name = there.run("e, name = listening(o)\nname", o=ours)
        assert here.run("engine(o).connect(name, 5000)", o=ours, name=name) == status
    here.clean()
    there.clean()


def test_rule_3_4_roce_forced_ok(make_lab):
    # HCCL_INTRA_ROCE_ENABLE=1: of what is generated only RoCE is kept.
    lab = make_lab({"devices": {"sim": {"product": A2, "product_limits": True}}},
                   environment={"HCCL_INTRA_ROCE_ENABLE": "1"})
    outcome = matrix(lab, {})
    assert {outcome[pair] for pair in ALL} == {SUCCESS}


# --- what operators see ------------------------------------------------------------------------------

def test_rule_7_shown_ok(labs):
    text = labs(A3).node.ctl("devices", "--rules").stdout
    for word in (A3, "A3", "hccs:device", "fabric:device", "remote side must not be host memory", "yes", "no"):
        assert word in text, text
    device = json.loads(labs(A3).node.ctl("--json", "devices").stdout)["devices"][0]
    assert device["product_form"] == "A3" and device["product_limits"] is True
    assert {r["protocol"] for r in device["rules"]} == {"hccs:device", "roce:device", "fabric:device"}


def test_rule_7_shown_bad(installation, tmp_path):
    # Limits of a product that nobody knows stop the start with a line that lists the known ones.
    from harness.daemon import Daemon
    daemon = Daemon(installation, tmp_path, config={
        "devices": {"backends": ["sim"], "sim": {"product": "Abacus", "product_limits": True}}})
    daemon.spawn()
    assert daemon.process.wait(30) != 0
    assert "devices.sim.product" in daemon.log() or "Abacus" in daemon.log()
    assert A2 in daemon.log()
