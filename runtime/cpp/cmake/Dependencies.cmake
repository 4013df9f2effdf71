# Threads of the system, ONNX Runtime, nlohmann/json and SentencePiece. The next two are downloaded where they are not to be had.
include(FetchContent)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(NOT TARGET onnxruntime::onnxruntime)
    if(NOT ONNXRUNTIME_ROOT)
        set(ONNXRUNTIME_VERSION "1.32.0" CACHE STRING "Release to download where ONNXRUNTIME_ROOT is not given")
        if(APPLE)
            set(_tfexport_platform osx-universal2)
        elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
            set(_tfexport_platform linux-aarch64)
        else()
            set(_tfexport_platform linux-x64)
        endif()
        FetchContent_Declare(onnxruntime URL
            https://github.com/microsoft/onnxruntime/releases/download/v${ONNXRUNTIME_VERSION}/onnxruntime-${_tfexport_platform}-${ONNXRUNTIME_VERSION}.tgz)
        FetchContent_MakeAvailable(onnxruntime)
        set(ONNXRUNTIME_ROOT ${onnxruntime_SOURCE_DIR} CACHE PATH "" FORCE)
    endif()
    find_package(TfexportOnnxRuntime REQUIRED)
endif()

if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json 3.9 QUIET)
    if(NOT nlohmann_json_FOUND)
        FetchContent_Declare(nlohmann_json URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
            URL_HASH SHA256=d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
        FetchContent_MakeAvailable(nlohmann_json)
    endif()
endif()

if(TFEXPORT_SENTENCEPIECE AND NOT TARGET sentencepiece::sentencepiece)
    find_package(TfexportSentencePiece REQUIRED)
endif()
