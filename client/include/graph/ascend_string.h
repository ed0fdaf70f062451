// ge::AscendString under the name by which programs for CANN include it.
#ifndef HIXLD_GRAPH_ASCEND_STRING_H_
#define HIXLD_GRAPH_ASCEND_STRING_H_

#include "external/ge_common/ascend_string.h"

#endif  // HIXLD_GRAPH_ASCEND_STRING_H_
