# find_package(tfexport) and pkg-config.
include(CMakePackageConfigHelpers)
set(_tfexport_package ${CMAKE_INSTALL_LIBDIR}/cmake/tfexport)

install(TARGETS tfexport EXPORT tfexportTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT tfexportTargets NAMESPACE tfexport:: DESTINATION ${_tfexport_package})
install(DIRECTORY include/tfexport DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TFEXPORT_BUILD_CLI)
    install(TARGETS tfexport-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/tfexportConfig.cmake.in tfexportConfig.cmake INSTALL_DESTINATION ${_tfexport_package})
write_basic_package_version_file(tfexportConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/tfexportConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/tfexportConfigVersion.cmake
    cmake/FindTfexportOnnxRuntime.cmake cmake/FindTfexportSentencePiece.cmake
    DESTINATION ${_tfexport_package})

get_filename_component(_tfexport_ort_folder ${ONNXRUNTIME_LIBRARY} DIRECTORY)
set(TFEXPORT_PRIVATE_LIBRARIES "-L${_tfexport_ort_folder} -lonnxruntime")
if(TFEXPORT_SENTENCEPIECE)
    string(APPEND TFEXPORT_PRIVATE_LIBRARIES " -lsentencepiece")
endif()
# Relative, so that the installed folder may be moved.
file(RELATIVE_PATH TFEXPORT_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/tfexport.pc.in tfexport.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tfexport.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
