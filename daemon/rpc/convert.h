// What the services say of the engine's own types, in the protocol's words.
#pragma once

#include "daemon/engine/transfer.h"
#include "proto/hixl/v1/types.pb.h"
#include "transports/memory_access.h"

namespace hixld {

::hixl::v1::MemoryAccess ToProto(MemoryAccess::Kind kind);
::hixl::v1::TransferState ToProto(TransferState state);

}  // namespace hixld
