"""Contract 3.1 to 3.5: every option, what it takes, what it refuses, and what took effect."""

import json

import pytest
from harness.peer import PARAM_INVALID, SUCCESS, UNSUPPORTED

V13 = '{"version":"1.3"}'
ENDPOINT = {"protocol": "roce", "comm_id": "10.0.0.1", "placement": "host"}


def resources(**fields):
    return {"GlobalResourceConfig": json.dumps({k.replace("__", "."): v for k, v in fields.items()})}


def comm_res(*endpoints, **fields):
    return {"LocalCommRes": json.dumps({"version": "1.3", "net_instance_id": "pod",
                                        "endpoint_list": list(endpoints), **fields})}


def taken(run, options):
    assert run("[initialize(options), hixl.last_error()]", options=options)[0] == SUCCESS, options


def refused(run, options, *words):
    status, text = run("[initialize(options), hixl.last_error()]", options=options)
    assert status == PARAM_INVALID, (options, status)
    for word in words:
        assert word in text, text


# --- 3.1 -------------------------------------------------------------------------------------------

GOOD = {
    "RdmaTrafficClass": ["0", "4", "132", "252", ""],
    "RdmaServiceLevel": ["0", "7", ""],
    "BufferPool": ["4:8", "1:1", "0:0", ""],
    "EnableUseFabricMem": ["0", "1", ""],
    "AutoConnect": ["0", "1"],
    "GlobalResourceConfig": ["{}", ""],
    "LocalCommRes": [V13, "{}", '{"version":"1.0"}', '{"version":"1.2"}', ""],
    "adxl.RdmaTrafficClass": ["8"],
    "adxl.RdmaServiceLevel": ["3"],
    "adxl.BufferPool": ["2:4"],
    "adxl.LocalCommRes": [V13],
}
BAD = {
    "RdmaTrafficClass": ["-4", "1", "256", "4.0", "4 ", " 4", "0x4", "a", "+4", "99999999999999999999"],
    "RdmaServiceLevel": ["-1", "8", "1.5", "x"],
    "BufferPool": ["4", "4:", ":8", "4:8:1", "0:8", "4:0", "-4:8", "a:b", "4 : 8", "4294967296:1",
                   "4294967295:4294967295", "99999999999999999999:1"],
    "EnableUseFabricMem": ["2", "true", " "],
    "AutoConnect": ["", "2", "true", "01"],
    "GlobalResourceConfig": ["[]", "{", "7", "\"x\"", "null", "{}{}"],
    "LocalCommRes": ["{", "[]", "7", "null", "{]"],
    "adxl.RdmaTrafficClass": ["1"],
    "adxl.RdmaServiceLevel": ["8"],
    "adxl.BufferPool": ["4"],
    "adxl.LocalCommRes": ["{"],
    "InvalidOption": ["x"],
    "autoconnect": ["1"],
    "adxl.AutoConnect": ["1"],
    "": [""],
}


@pytest.mark.parametrize("key", GOOD)
def test_rule_3_1_option_ok(run, key):
    for value in GOOD[key]:
        taken(run, {key: value})


@pytest.mark.parametrize("key", BAD)
def test_rule_3_1_option_bad(run, key):
    for value in BAD[key]:
        refused(run, {key: value}, key.removeprefix("adxl."))


def test_rule_3_1_plain_key_wins_ok(run):
    taken(run, {"RdmaTrafficClass": "8", "adxl.RdmaTrafficClass": "12"})
    taken(run, {"RdmaTrafficClass": "8", "adxl.RdmaTrafficClass": "nonsense"})


def test_rule_3_1_plain_key_wins_bad(run):
    refused(run, {"RdmaTrafficClass": "9", "adxl.RdmaTrafficClass": "12"}, "RdmaTrafficClass")


@pytest.mark.parametrize("chooses", [{"LocalCommRes": V13}, {"EnableUseFabricMem": "1"},
                                     resources(comm_resource_config__protocol_desc="roce:device")])
def test_rule_3_1_white_list_ok(run, chooses):
    taken(run, {**chooses, "BufferPool": "0:0"})
    taken(run, {**chooses, "RdmaTrafficClass": "4", "RdmaServiceLevel": "1", "AutoConnect": "1"})


@pytest.mark.parametrize("chooses", [{"LocalCommRes": V13}, {"EnableUseFabricMem": "1"},
                                     resources(comm_resource_config__protocol_desc="roce:device")])
def test_rule_3_1_white_list_bad(run, chooses):
    refused(run, {**chooses, "BufferPool": "4:8"}, "BufferPool")
    if "EnableUseFabricMem" not in chooses:
        refused(run, {**chooses, "EnableUseFabricMem": "0"}, "EnableUseFabricMem")


# --- 3.2 -------------------------------------------------------------------------------------------

RANGES = {  # key: lowest, highest
    "fabric_memory.max_capacity": (1, 1024),
    "fabric_memory.start_address": (0, 1024),
    "connect_pool.thread_num": (1, 64),
    "connect_pool.task_queue_capacity": (1, 65535),
    "comm_resource_config.listen_port": (1, 65535),
    "comm_resource_config.qos": (0, 7),
    "comm_resource_config.max_active_channels": (1, 4294967295),
}


@pytest.mark.parametrize("key", RANGES)
def test_rule_3_2_range_ok(run, key):
    for number in RANGES[key]:
        taken(run, resources(**{key: number}))
        taken(run, resources(**{key: str(number)}))


@pytest.mark.parametrize("key", RANGES)
def test_rule_3_2_range_bad(run, key):
    low, high = RANGES[key]
    for value in (low - 1, high + 1, str(low - 1), str(high + 1), 1.5, "1.5", True, None, [], {}, "", "x",
                  " 1", 10 ** 30):
        refused(run, resources(**{key: value}), key)
    # Whatever the engine, everything is parsed first.
    refused(run, {**resources(**{key: high + 1}), "EnableUseFabricMem": "1"}, key)
    refused(run, {**resources(**{key: high + 1}), "LocalCommRes": V13}, key)


def test_rule_3_2_fabric_streams_ok(run):
    taken(run, resources(fabric_memory__task_stream_num=8, fabric_memory__enable_aicpu_unfold=False))
    taken(run, resources(fabric_memory__task_stream_num="1", fabric_memory__enable_aicpu_unfold=True))
    taken(run, resources(fabric_memory={"task_stream_num": 3, "enable_aicpu_unfold": False}))
    # Flat keys override nested ones.
    taken(run, resources(fabric_memory={"task_stream_num": 3}, fabric_memory__task_stream_num=1))


def test_rule_3_2_fabric_streams_bad(run):
    refused(run, resources(fabric_memory__task_stream_num=2), "fabric_memory")
    refused(run, resources(fabric_memory={"task_stream_num": 2}), "fabric_memory")
    refused(run, resources(fabric_memory__task_stream_num=9, fabric_memory__enable_aicpu_unfold=False))
    refused(run, resources(fabric_memory__task_stream_num=0))
    for value in ("true", 1, 0, None):
        refused(run, resources(fabric_memory__enable_aicpu_unfold=value), "enable_aicpu_unfold")
    refused(run, resources(fabric_memory=[]), "fabric_memory")


@pytest.mark.parametrize("value", ["roce:device", ["roce:device"], ["roce:device", "hccs:device"], "ub_ctp:host",
                                   ["ub_ctp:device", "ub_ctp:host"], "uboe:device", "ub_rtp:device", "roce:host", []])
def test_rule_3_2_protocol_desc_ok(run, value):
    taken(run, resources(comm_resource_config__protocol_desc=value))


@pytest.mark.parametrize("value", ["roce", "roce:", "tcp:device", "roce:npu", "uboe:host", "ub_rtp:host", "hccs:host",
                                   ["uboe:device", "ub_rtp:device"], 7, None, {}, [7], [["roce:device"]], "",
                                   "ROCE:device"])
def test_rule_3_2_protocol_desc_bad(run, value):
    refused(run, resources(comm_resource_config__protocol_desc=value), "protocol_desc")


def test_rule_3_2_protocol_filter_ok(run):
    taken(run, {**comm_res(ENDPOINT), **resources(comm_resource_config__protocol_desc=["roce:host", "hccs:device"])})


def test_rule_3_2_protocol_filter_bad(run):
    refused(run, {**comm_res(ENDPOINT), **resources(comm_resource_config__protocol_desc="hccs:device")},
            "hccs:device")


def test_rule_3_2_comm_res_path_ok(run, tmp_path):
    path = tmp_path / "resources.json"
    path.write_text(V13)
    taken(run, resources(local_comm_res_path=str(path)))
    link = tmp_path / "link.json"
    link.symlink_to(path)
    taken(run, resources(local_comm_res_path=str(link)))
    path.write_text(V13 + " " * ((1 << 20) - len(V13)))
    taken(run, resources(local_comm_res_path=str(path)))
    # Not looked at when LocalCommRes itself is given.
    taken(run, {**resources(local_comm_res_path="/nowhere"), "LocalCommRes": V13})


def test_rule_3_2_comm_res_path_bad(run, tmp_path):
    path = tmp_path / "resources.json"
    for content in ("", "not JSON", V13 + " " * ((1 << 20) - len(V13) + 1)):
        path.write_text(content)
        refused(run, resources(local_comm_res_path=str(path)))
    refused(run, resources(local_comm_res_path=str(tmp_path / "absent")), "absent")
    refused(run, resources(local_comm_res_path=str(tmp_path)), str(tmp_path))
    refused(run, resources(local_comm_res_path="/dev/zero"), "regular file")
    for value in ("", 7, None, []):
        refused(run, resources(local_comm_res_path=value), "local_comm_res_path")


def test_rule_3_2_waterlines_ok(run):
    taken(run, resources(channel_pool__high_waterline=0.9, channel_pool__low_waterline=0.1))
    taken(run, resources(channel_pool__max_channel=4, channel_pool__high_waterline="0.5",
                         channel_pool__low_waterline="0.25"))


def test_rule_3_2_waterlines_bad(run):
    high, low = "channel_pool.high_waterline", "channel_pool.low_waterline"
    refused(run, resources(channel_pool__max_channel=10), "waterline")
    refused(run, resources(**{high: 0.5}), "waterline")
    refused(run, resources(**{low: 0.5}), "waterline")
    for bad in (0, 1, -0.5, 1.5, "x", "", "nan", True, None, []):
        refused(run, resources(**{high: bad, low: 0.1}), "waterline")
        refused(run, resources(**{high: 0.9, low: bad}), "waterline")
    # Both stand for the same number of links.
    refused(run, resources(**{high: 0.5, low: 0.5}), "waterline")
    refused(run, resources(**{"channel_pool.max_channel": 2, high: 0.9, low: 0.5}), "waterline")
    for most in (0, 513):
        refused(run, resources(**{"channel_pool.max_channel": most, high: 0.9, low: 0.1}), "max_channel")


def test_rule_3_2_unknown_keys_ok(run):
    taken(run, resources(nobody__knows=[1, {"x": None}], another="x"))


# --- 3.3: what took effect, as hixlctl shows it ------------------------------------------------------

def shown(lab, run, options, environment=None):
    """Settings of one engine by name: (value, where it came from)."""
    name = run("name = free_name()\nengine(options, name)\nname", options=options)
    listing = json.loads(lab.node.ctl("--json", "engines").stdout)
    engine = next(e for e in listing["engines"] if e["engine_id"] == name)
    settings = {s["name"]: (s["value"], s["source"]) for s in engine["effective_options"]}
    assert settings["engine"][0] == engine["engine_kind"]
    return settings


@pytest.mark.parametrize("options, kind", [
    ({}, "Comm"),
    ({"EnableUseFabricMem": "1"}, "Fabric"),
    ({"EnableUseFabricMem": "1", "LocalCommRes": V13}, "Fabric"),
    ({"LocalCommRes": V13}, "Hixl"),
    ({"adxl.LocalCommRes": V13}, "Hixl"),
    ({"LocalCommRes": '{"version":"1.2"}'}, "Comm"),
    ({"LocalCommRes": "{}"}, "Comm"),
    ({"LocalCommRes": '{"version":"1.0"}', **resources(comm_resource_config__protocol_desc="roce:device")}, "Comm"),
    (resources(comm_resource_config__protocol_desc="roce:device"), "Hixl"),
    (resources(comm_resource_config__protocol_desc=[]), "Comm"),
])
def test_rule_3_3_selection_ok(lab, run, options, kind):
    assert shown(lab, run, options)["engine"][0] == kind


def test_rule_3_3_selection_bad(run):
    # LocalCommRes is parsed whatever else chooses the engine.
    refused(run, {"EnableUseFabricMem": "1", "LocalCommRes": "{"}, "LocalCommRes")


def test_rule_3_3_effective_ok(lab, run):
    settings = shown(lab, run, {"RdmaTrafficClass": "8", "adxl.BufferPool": "2:16",
                                **resources(connect_pool__thread_num=5)})
    assert settings["RdmaTrafficClass"] == ("8", "option")
    assert settings["RdmaServiceLevel"] == ("4", "default")
    assert settings["BufferPool"] == ("2:16", "option")
    assert settings["connect_pool.thread_num"] == ("5", "GlobalResourceConfig")
    assert settings["connect_pool.task_queue_capacity"] == ("128", "default")
    text = lab.node.ctl("engines", "--options").stdout
    assert "RdmaTrafficClass" in text and "GlobalResourceConfig" in text and "FROM" in text


@pytest.fixture(scope="module")
def labs_by_product(make_lab):
    return {product: make_lab({"devices": {"backends": ["sim"], "sim": {"product": product}}})
            for product in ("Ascend950PR_9589", "Ascend910B3")}


def test_rule_3_3_soc_name_ok(labs_by_product):
    lab = labs_by_product["Ascend950PR_9589"]
    settings = shown(lab, lab.run, {})
    assert settings["engine"] == ("Hixl", "product Ascend950PR_9589")
    assert shown(lab, lab.run, {"LocalCommRes": '{"version":"1.0"}'})["engine"][0] == "Comm"
    lab = labs_by_product["Ascend910B3"]
    assert shown(lab, lab.run, {})["engine"] == ("Comm", "default")


def test_rule_3_3_soc_name_bad(labs_by_product):
    # The engine that the product asks for has its own white-list.
    lab = labs_by_product["Ascend950PR_9589"]
    refused(lab.run, {"BufferPool": "4:8"}, "BufferPool")
    refused(lab.run, {"EnableUseFabricMem": "0"}, "EnableUseFabricMem")
    taken(labs_by_product["Ascend910B3"].run, {"BufferPool": "4:8", "EnableUseFabricMem": "0"})


# --- 3.4 -------------------------------------------------------------------------------------------

EID = "0123456789abcdef0123456789ABCDEF"


@pytest.mark.parametrize("endpoint", [
    ENDPOINT, {**ENDPOINT, "comm_id": "fd00::1"}, {**ENDPOINT, "protocol": "uboe", "placement": "device"},
    {"protocol": "hccs", "comm_id": "1234567890", "placement": "device"},
    {"protocol": "ub_ctp", "comm_id": EID, "placement": "host", "plane": "a", "dst_eid": EID, "server_id": "s"},
    {"protocol": "ub_rtp", "comm_id": EID, "placement": "device"},
    {**ENDPOINT, "device_info": {"phy_device_id": 0, "super_device_id": "1", "super_pod_id": "2"}},
    {**ENDPOINT, "unknown": 7},
])
def test_rule_3_4_endpoint_ok(run, endpoint):
    taken(run, comm_res(endpoint))


@pytest.mark.parametrize("change", [
    {"protocol": "tcp"}, {"protocol": None}, {"protocol": 7}, {"comm_id": "10.0.0"}, {"comm_id": "host"},
    {"comm_id": ""}, {"comm_id": 7}, {"placement": "npu"}, {"placement": None},
    {"protocol": "hccs", "comm_id": "12345678901"}, {"protocol": "hccs", "comm_id": "a"},
    {"protocol": "hccs", "comm_id": ""}, {"protocol": "ub_ctp", "comm_id": EID[1:]},
    {"protocol": "ub_rtp", "comm_id": "g" * 32}, {"plane": 1}, {"dst_eid": 1}, {"server_id": []},
    {"device_info": "x"},
])
def test_rule_3_4_endpoint_bad(run, change):
    refused(run, comm_res({**ENDPOINT, **change}), "endpoint_list")


@pytest.mark.parametrize("missing", ["protocol", "comm_id", "placement"])
def test_rule_3_4_endpoint_fields_bad(run, missing):
    refused(run, comm_res({k: v for k, v in ENDPOINT.items() if k != missing}), missing)


def test_rule_3_4_both_rtp_and_uboe_bad(run):
    refused(run, comm_res({"protocol": "uboe", "comm_id": "10.0.0.1", "placement": "device"},
                          {"protocol": "ub_rtp", "comm_id": EID, "placement": "device"}), "ub_rtp")


def test_rule_3_4_generated_ok(run):
    for text in (V13, '{"version":"1.3","net_instance_id":"a"}', '{"version":"1.3","endpoint_list":[]}',
                 json.dumps({"version": "1.3", "endpoint_list": [ENDPOINT]}),
                 json.dumps({"version": "1.3", "net_instance_id": "", "endpoint_list": [ENDPOINT]}),
                 '{"version":"1.3","server_id":"tolerated at the top"}'):
        taken(run, {"LocalCommRes": text})


def test_rule_3_4_generated_bad(run):
    for fields in ({"endpoint_list": 7}, {"endpoint_list": {}}, {"endpoint_list": [7]}, {"net_instance_id": 7}):
        refused(run, comm_res(**fields))


def test_rule_3_4_rank_table_ok(run):
    # Versions 1.0 and 1.2: other values show when the link is made, not here.
    table = {"version": "1.2", "server_list": [{"server_id": "a", "device": [{"device_id": "0"}]}],
             "super_pod_list": [{"super_pod_id": "p", "server_list": [{"server_id": "a"}]}]}
    taken(run, {"LocalCommRes": json.dumps(table)})
    for version in ("1.0", "7", "", 3):
        taken(run, {"LocalCommRes": json.dumps({"version": version})})


# --- 3.5 -------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def lab_in(make_lab, make_node):
    """A client process with environment variables, all on one daemon."""
    node = make_node()
    return lambda **variables: make_lab(node=node, environment=variables)


def test_rule_3_5_rdma_ok(lab_in):
    lab = lab_in(HCCL_RDMA_TC="8", HCCL_RDMA_SL="1", HCCL_INTRA_ROCE_ENABLE="1")
    settings = shown(lab, lab.run, {"RdmaTrafficClass": ""})
    assert settings["RdmaTrafficClass"] == ("8", "environment HCCL_RDMA_TC")
    assert settings["RdmaServiceLevel"] == ("1", "environment HCCL_RDMA_SL")
    assert settings["HCCL_INTRA_ROCE_ENABLE"] == ("1", "environment")
    assert shown(lab, lab.run, {"RdmaTrafficClass": "12"})["RdmaTrafficClass"] == ("12", "option")


@pytest.mark.parametrize("variable, value", [("HCCL_RDMA_TC", "9"), ("HCCL_RDMA_TC", "x"), ("HCCL_RDMA_SL", "8")])
def test_rule_3_5_rdma_bad(lab_in, variable, value):
    lab = lab_in(**{variable: value})
    refused(lab.run, {}, variable)
    # Not looked at when the option is given.
    taken(lab.run, {"RdmaTrafficClass": "4", "RdmaServiceLevel": "1"})


def test_rule_3_5_device_id_ok(lab_in):
    lab = lab_in(ASCEND_DEVICE_ID="1")
    name = lab.run("name = free_name()\nengine({}, name)\nname")
    listing = json.loads(lab.node.ctl("--json", "engines").stdout)
    assert next(e for e in listing["engines"] if e["engine_id"] == name)["device_id"] == 1


def test_rule_3_5_device_id_bad(lab_in):
    refused(lab_in(ASCEND_DEVICE_ID="one").run, {}, "ASCEND_DEVICE_ID")


def test_rule_9_8_950_without_resources_ok(labs_by_product):
    # Endpoints are generated for an empty LocalCommRes, too.
    taken(labs_by_product["Ascend950PR_9589"].run, {"LocalCommRes": ""})


def test_rule_3_2_fabric_is_for_a3_bad(make_lab):
    lab = make_lab({"devices": {"backends": ["sim"], "sim": {"product": "Ascend910B3", "product_limits": True}}})
    assert lab.run("initialize({'EnableUseFabricMem': '1'})") == UNSUPPORTED
