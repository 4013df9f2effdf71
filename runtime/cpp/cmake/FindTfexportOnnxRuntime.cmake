# onnxruntime::onnxruntime from ONNXRUNTIME_ROOT: a release, an unpacked Android AAR, or a folder with include/ and lib/.
# The releases bring a CMake package of their own, but it points to folders that are not in them.
if(ANDROID)
    set(_tfexport_abi jni/${ANDROID_ABI})
endif()
find_path(ONNXRUNTIME_INCLUDE_DIR onnxruntime_cxx_api.h HINTS ${ONNXRUNTIME_ROOT}
    PATH_SUFFIXES include include/onnxruntime headers Headers NO_CMAKE_FIND_ROOT_PATH)
find_library(ONNXRUNTIME_LIBRARY NAMES onnxruntime libonnxruntime.so.1 HINTS ${ONNXRUNTIME_ROOT}
    PATH_SUFFIXES lib lib64 ${_tfexport_abi} NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(ONNXRUNTIME_INCLUDE_DIR ONNXRUNTIME_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TfexportOnnxRuntime REQUIRED_VARS ONNXRUNTIME_LIBRARY ONNXRUNTIME_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "set ONNXRUNTIME_ROOT to a folder with include/ and lib/ of ONNX Runtime")
if(TfexportOnnxRuntime_FOUND AND NOT TARGET onnxruntime::onnxruntime)
    add_library(onnxruntime::onnxruntime UNKNOWN IMPORTED)
    set_target_properties(onnxruntime::onnxruntime PROPERTIES
        IMPORTED_LOCATION ${ONNXRUNTIME_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ONNXRUNTIME_INCLUDE_DIR})
endif()
