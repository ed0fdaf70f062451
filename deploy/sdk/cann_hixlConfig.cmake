# find_package(cann_hixl): targets cann_hixl (shared) and cann_hixl_static.
get_filename_component(_cann_hixl_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET cann_hixl)
  add_library(cann_hixl SHARED IMPORTED)
  set_target_properties(cann_hixl PROPERTIES
    IMPORTED_LOCATION "${_cann_hixl_prefix}/lib/libcann_hixl.so"
    IMPORTED_SONAME libcann_hixl.so
    INTERFACE_INCLUDE_DIRECTORIES "${_cann_hixl_prefix}/include")
endif()

if(NOT TARGET cann_hixl_static)
  file(STRINGS "${_cann_hixl_prefix}/lib/libcann_hixl.a.libs" _cann_hixl_static_libs)
  add_library(cann_hixl_static STATIC IMPORTED)
  set_target_properties(cann_hixl_static PROPERTIES
    IMPORTED_LOCATION "${_cann_hixl_prefix}/lib/libcann_hixl.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_cann_hixl_prefix}/include"
    INTERFACE_LINK_LIBRARIES "${_cann_hixl_static_libs}")
  unset(_cann_hixl_static_libs)
endif()

unset(_cann_hixl_prefix)
