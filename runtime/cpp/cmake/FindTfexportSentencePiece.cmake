# sentencepiece::sentencepiece from the system or SENTENCEPIECE_ROOT.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h HINTS ${SENTENCEPIECE_ROOT} PATH_SUFFIXES include usr/include)
find_library(SENTENCEPIECE_LIBRARY NAMES sentencepiece libsentencepiece.so.0 HINTS ${SENTENCEPIECE_ROOT}
    PATH_SUFFIXES lib usr/lib usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
mark_as_advanced(SENTENCEPIECE_INCLUDE_DIR SENTENCEPIECE_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TfexportSentencePiece REQUIRED_VARS SENTENCEPIECE_LIBRARY SENTENCEPIECE_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "install libsentencepiece-dev, set SENTENCEPIECE_ROOT, or set TFEXPORT_SENTENCEPIECE=OFF")
if(TfexportSentencePiece_FOUND AND NOT TARGET sentencepiece::sentencepiece)
    add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED)
    set_target_properties(sentencepiece::sentencepiece PROPERTIES
        IMPORTED_LOCATION ${SENTENCEPIECE_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SENTENCEPIECE_INCLUDE_DIR})
endif()
