// What the shared library exports.
#pragma once

#if defined(_WIN32) && defined(TFEXPORT_BUILDS_SHARED)
#define TFEXPORT_API __declspec(dllexport)
#elif defined(_WIN32) && defined(TFEXPORT_SHARED)
#define TFEXPORT_API __declspec(dllimport)
#elif defined(__GNUC__)
#define TFEXPORT_API __attribute__((visibility("default")))
#else
#define TFEXPORT_API
#endif
