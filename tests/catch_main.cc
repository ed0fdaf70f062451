// The main function of every unit test. Where Bazel asks for it (XML_OUTPUT_FILE), the result of
// each test case is also written as JUnit XML, so that reports count cases and not binaries.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

std::string EscapeXml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML 1.0 has no way to write other control characters.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

class JUnitListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    TestEventListenerBase::testCaseEnded(stats);
    cases_.push_back({stats.testInfo.name, stats.totals.assertions.allOk()});
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    TestEventListenerBase::testRunEnded(stats);
    const char* path = std::getenv("XML_OUTPUT_FILE");
    if (path == nullptr) return;
    size_t failures = 0;
    for (const Case& test : cases_) failures += test.passed ? 0 : 1;
    std::ofstream file(path);
    file << "<testsuites><testsuite name=\"" << EscapeXml(stats.runInfo.name) << "\" tests=\""
         << cases_.size() << "\" failures=\"" << failures << "\">\n";
    for (const Case& test : cases_) {
      file << "<testcase name=\"" << EscapeXml(test.name) << "\">"
           << (test.passed ? "" : "<failure/>") << "</testcase>\n";
    }
    file << "</testsuite></testsuites>\n";
  }

 private:
  struct Case {
    std::string name;
    bool passed;
  };
  std::vector<Case> cases_;
};

CATCH_REGISTER_LISTENER(JUnitListener)

}  // namespace
