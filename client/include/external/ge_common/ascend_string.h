// ge::AscendString: the string of the HIXL API.
//
// It holds one shared pointer and nothing else, and every function that looks into the string is
// inside the library. So a program and the library may use different std::string ABIs.
#ifndef HIXLD_EXTERNAL_GE_COMMON_ASCEND_STRING_H_
#define HIXLD_EXTERNAL_GE_COMMON_ASCEND_STRING_H_

// A CANN toolkit's own ge::AscendString, when it was included first, is used as it is.
#ifndef INC_EXTERNAL_GRAPH_ASCEND_STRING_H_
#define INC_EXTERNAL_GRAPH_ASCEND_STRING_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#ifndef ASCEND_FUNC_VISIBILITY
#ifdef FUNC_VISIBILITY
#define ASCEND_FUNC_VISIBILITY __attribute__((visibility("default")))
#else
#define ASCEND_FUNC_VISIBILITY
#endif
#endif

namespace ge {

using char_t = char;
using float32_t = float;
using float64_t = double;

// A shared immutable string, or null. Default-constructed it is null, which differs from "".
class ASCEND_FUNC_VISIBILITY AscendString {
 public:
  AscendString() = default;
  ~AscendString() = default;
  AscendString(const AscendString&) = default;
  AscendString(AscendString&&) = default;
  AscendString& operator=(const AscendString&) = default;
  AscendString& operator=(AscendString&&) = default;

  // Copies up to the NUL; a null pointer gives the null state.
  AscendString(const char_t* name);  // NOLINT: implicit by contract
  // Copies exactly `length` bytes; a null pointer gives the null state.
  AscendString(const char_t* name, size_t length);

  // Never nullptr: "" in the null state. Valid as long as a copy of this string lives.
  const char_t* GetString() const;
  // Bytes; 0 in the null state.
  size_t GetLength() const;
  // Offset of the first occurrence; std::string::npos if there is none or either is null.
  size_t Find(const AscendString& name) const;
  size_t Hash() const;

  // Lexicographic; null sorts before everything and equals null only.
  bool operator<(const AscendString& other) const;
  bool operator>(const AscendString& other) const;
  bool operator<=(const AscendString& other) const;
  bool operator>=(const AscendString& other) const;
  bool operator==(const AscendString& other) const;
  bool operator!=(const AscendString& other) const;
  // The null state equals nullptr only.
  bool operator==(const char_t* other) const;
  bool operator!=(const char_t* other) const;

 private:
  std::shared_ptr<std::string> name_;
};

}  // namespace ge

namespace std {
template <>
struct hash<ge::AscendString> {
  size_t operator()(const ge::AscendString& name) const { return name.Hash(); }
};
}  // namespace std

#endif  // INC_EXTERNAL_GRAPH_ASCEND_STRING_H_
#endif  // HIXLD_EXTERNAL_GE_COMMON_ASCEND_STRING_H_
