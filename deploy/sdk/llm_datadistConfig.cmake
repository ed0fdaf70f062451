# find_package(llm_datadist): target llm_datadist, and those of cann_hixl, on which it stands.
include(CMakeFindDependencyMacro)
find_dependency(cann_hixl CONFIG HINTS "${CMAKE_CURRENT_LIST_DIR}/../cann_hixl")
get_filename_component(_llm_datadist_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET llm_datadist)
  add_library(llm_datadist SHARED IMPORTED)
  set_target_properties(llm_datadist PROPERTIES
    IMPORTED_LOCATION "${_llm_datadist_prefix}/lib/libllm_datadist.so"
    IMPORTED_SONAME libllm_datadist.so
    INTERFACE_INCLUDE_DIRECTORIES "${_llm_datadist_prefix}/include"
    INTERFACE_LINK_LIBRARIES cann_hixl)
endif()

unset(_llm_datadist_prefix)
