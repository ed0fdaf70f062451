// The text codes of errors (contract 5.3), with what an operator shall know about them.
#pragma once

#include <string>

namespace hixld::client {

struct TextCode {
  const char* code;
  const char* meaning;
  const char* cause;
  const char* advice;
};

// nullptr for a code that is none of ours. The table of docs/errors.md has the same lines.
const TextCode* FindTextCode(const std::string& code);

}  // namespace hixld::client
