// Which of an engine's regions a client of this daemon can reach by itself.
#pragma once

#include "daemon/direct/direct_gate.h"
#include "daemon/memory/region.h"

namespace hixld {

// Fills in the regions, files and process of a plan. `here`: the engine is the client's own. Memory
// of devices, and memory that only the daemon or its owner reaches, is left out, and so is host
// memory that device memory overlaps, since a look-up would find that first.
DirectGate::Plan PlanDirect(const RegionSnapshot& snapshot, bool here);

}  // namespace hixld
