from tools.summarize import Totals, main, totals_of

REPORT = """<testsuites><testsuite name="s" tests="4">
<testcase name="a"/>
<testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><error message="x"/></testcase>
<testcase name="d"><skipped message="no namespaces"/></testcase>
</testsuite></testsuites>"""


def written(tmp_path, text, name="report.xml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_counts_cases_by_outcome(tmp_path):
    assert totals_of(written(tmp_path, REPORT)) == Totals(passed=1, failed=2, skipped=1)


def test_a_missing_report_is_a_failure(tmp_path):
    assert totals_of(str(tmp_path / "absent.xml")) == Totals(failed=1)


def test_a_truncated_report_is_a_failure(tmp_path):
    assert totals_of(written(tmp_path, REPORT[:60])) == Totals(failed=1)


def test_last_line_and_exit_code_when_all_pass(tmp_path, capsys):
    good = written(tmp_path, '<testsuite><testcase name="a"/><testcase name="b"/></testsuite>')
    assert main([good, good]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "4 passed, 0 failed, 0 skipped"


def test_one_failure_fails_the_run(tmp_path):
    assert main([written(tmp_path, REPORT)]) == 1


def test_nothing_ran_fails_the_run(tmp_path):
    assert main([]) == 1
    skipped_only = '<testsuite><testcase name="a"><skipped/></testcase></testsuite>'
    assert main([written(tmp_path, skipped_only)]) == 1
