#include "client/hixlctl/json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "client/hixlctl/human.h"

namespace hixld::hixlctl {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json FieldsOf(const Message& message);

// "TransferState" -> "TRANSFER_STATE_".
std::string EnumPrefix(const std::string& type_name) {
  std::string prefix;
  for (const char c : type_name) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return prefix + '_';
}

Json EnumOf(const EnumValueDescriptor* value) {
  return EnumWord(value->name(), EnumPrefix(value->type()->name()));
}

// `index` < 0: the field is not repeated.
Json ValueOf(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection& get = *message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? get.GetInt32(message, field) : get.GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? get.GetInt64(message, field) : get.GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? get.GetUInt32(message, field) : get.GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? get.GetUInt64(message, field) : get.GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? get.GetDouble(message, field) : get.GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? get.GetFloat(message, field) : get.GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? get.GetBool(message, field) : get.GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumOf(one ? get.GetEnum(message, field) : get.GetRepeatedEnum(message, field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? get.GetString(message, field) : get.GetRepeatedString(message, field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FieldsOf(one ? get.GetMessage(message, field)
                          : get.GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

Json MapOf(const Message& message, const FieldDescriptor* field) {
  Json object = Json::object();
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) {
    const Message& entry = message.GetReflection()->GetRepeatedMessage(message, field, i);
    const Json key = ValueOf(entry, field->message_type()->map_key(), -1);
    object[key.is_string() ? key.get<std::string>() : key.dump()] =
        ValueOf(entry, field->message_type()->map_value(), -1);
  }
  return object;
}

// Every field, also those that have their default.
Json FieldsOf(const Message& message) {
  Json object = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    if (field->is_map()) {
      object[field->name()] = MapOf(message, field);
    } else if (field->is_repeated()) {
      Json& array = object[field->name()] = Json::array();
      const int size = message.GetReflection()->FieldSize(message, field);
      for (int j = 0; j < size; ++j) array.push_back(ValueOf(message, field, j));
    } else {
      object[field->name()] = ValueOf(message, field, -1);
    }
  }
  return object;
}

}  // namespace

std::string ToJson(const Output& output, bool pretty) {
  Json document = {{"version", kJsonVersion}};
  for (const auto& [name, value] : output.words) {
    document[name] = value.empty() ? Json(nullptr) : Json(value);
  }
  if (output.message != nullptr) {
    Json fields = FieldsOf(*output.message);
    if (output.json_name.empty()) {
      document.update(fields);
    } else {
      document[output.json_name] = std::move(fields);
    }
  }
  if (!output.rows_name.empty()) {
    Json& list = document[output.rows_name] = Json::array();
    for (const Words& row : output.rows) {
      Json& object = list.emplace_back(Json::object());
      for (const auto& [name, value] : row) object[name] = value;
    }
  }
  return document.dump(pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hixld::hixlctl
