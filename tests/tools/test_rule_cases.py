from types import SimpleNamespace

from tools.rule_cases import coverage, load_rules


def tree(tmp_path, text):
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "test_x.py").write_text(text)
    return tmp_path


def rules(table, elsewhere=None, parts=()):
    return SimpleNamespace(RULES=table, ELSEWHERE=elsewhere or {}, WITHOUT={}, PARTS=parts)


def test_every_rule_of_the_contract_has_its_cases():
    result = coverage(load_rules())
    assert result.ok, result


def test_a_rule_without_its_negative_case_is_missing(tmp_path):
    tests = tree(tmp_path, "def test_rule_1_1_a_ok(): pass\n")
    assert coverage(rules({"1_1_a": ("", ("ok", "bad"))}), tests).missing == ["1_1_a: bad"]
    assert coverage(rules({"1_1_a": ("", ("ok",), "it refuses nothing")}), tests).ok


def test_a_case_of_no_rule_is_told(tmp_path):
    tests = tree(tmp_path, "def test_rule_1_1_a_ok(): pass\ndef test_rule_1_1_b_bad(): pass\n")
    assert coverage(rules({"1_1_a": ("", ("ok",), "why")}), tests).unknown == ["1_1_b_bad"]


def test_a_place_that_is_not_there_is_told(tmp_path):
    tests = tree(tmp_path, "def test_other(): pass\n")
    assert coverage(rules({}, {"2": "conformance/test_x.py::test_oth"}), tests).ok
    assert not coverage(rules({}, {"2": "conformance/test_x.py::test_none"}), tests).ok
    assert not coverage(rules({}, {"2": "conformance/test_y.py::test_other"}), tests).ok


def test_a_table_counts_like_functions(tmp_path):
    tests = tree(tmp_path, "RULE_CASES = {'1_1_a_bad': ('code', 1)}\ndef test_rule_1_1_a_ok(): pass\n")
    assert coverage(rules({"1_1_a": ("", ("ok", "bad"))}), tests).ok


def test_one_side_needs_a_reason_and_two_have_none(tmp_path):
    tests = tree(tmp_path, "def test_rule_1_1_a_ok(): pass\ndef test_rule_1_1_a_bad(): pass\n")
    assert coverage(rules({"1_1_a": ("", ("ok",))}), tests).unexplained == ["1_1_a"]
    assert coverage(rules({"1_1_a": ("", ("ok",), "")}), tests).unexplained == ["1_1_a"]
    assert coverage(rules({"1_1_a": ("", ("ok", "bad"), "why")}), tests).unexplained == ["1_1_a"]


def test_every_part_has_a_rule(tmp_path):
    tests = tree(tmp_path, "def test_rule_1_1_a_ok(): pass\ndef test_other(): pass\n")
    table = {"1_1_a": ("", ("ok",), "why")}
    elsewhere = {"6_1 B7 B8": "conformance/test_x.py::test_other"}
    assert coverage(rules(table, elsewhere, ("1_1", "B7", "B8")), tests).ok
    assert coverage(rules(table, elsewhere, ("1_10", "1_2", "B9")), tests).unmentioned == ["1_10", "1_2", "B9"]
