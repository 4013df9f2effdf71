// Between dev.tfexport.Translator and the C interface. Errors become IllegalArgumentException or IllegalStateException.
#include <jni.h>
#include <tfexport/tfexport.h>

#include <string>
#include <vector>

namespace {

/// The bytes of an array that ends with a zero; nothing for null.
class Text {
public:
    Text(JNIEnv* env, jbyteArray array) : given_(array != nullptr) {
        if (!given_) return;
        bytes_.resize(static_cast<std::size_t>(env->GetArrayLength(array)) + 1);
        env->GetByteArrayRegion(array, 0, env->GetArrayLength(array), reinterpret_cast<jbyte*>(&bytes_[0]));
    }
    const char* get() const { return given_ ? bytes_.c_str() : nullptr; }

private:
    bool given_;
    std::string bytes_;
};

void raise(JNIEnv* env, tfexport_status status) {
    const bool caller = status == TFEXPORT_OPTION || status == TFEXPORT_INPUT;
    const char* name = caller ? "java/lang/IllegalArgumentException" : "java/lang/IllegalStateException";
    const jclass type = env->FindClass(name);
    if (type != nullptr) env->ThrowNew(type, tfexport_last_error());
}

tfexport_translator* translator_of(jlong handle) { return reinterpret_cast<tfexport_translator*>(handle); }

jobjectArray best_texts(JNIEnv* env, const tfexport_result* result) {
    const jclass type = env->FindClass("[B");
    const auto count = static_cast<jsize>(tfexport_result_texts(result));
    const jobjectArray all = type == nullptr ? nullptr : env->NewObjectArray(count, type, nullptr);
    for (jsize i = 0; all != nullptr && i < count; ++i) {
        const std::string text = tfexport_result_text(result, static_cast<std::size_t>(i), 0);
        const auto size = static_cast<jsize>(text.size());
        const jbyteArray bytes = env->NewByteArray(size);
        if (bytes == nullptr) return nullptr;  // an OutOfMemoryError is on its way
        env->SetByteArrayRegion(bytes, 0, size, reinterpret_cast<const jbyte*>(text.data()));
        env->SetObjectArrayElement(all, i, bytes);
        env->DeleteLocalRef(bytes);
    }
    return all;
}

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_dev_tfexport_Translator_open(JNIEnv* env, jclass, jbyteArray path, jbyteArray session) {
    tfexport_translator* translator = nullptr;
    const auto status = tfexport_open(Text(env, path).get(), Text(env, session).get(), &translator);
    if (status != TFEXPORT_OK) raise(env, status);
    return reinterpret_cast<jlong>(translator);
}

JNIEXPORT jlong JNICALL Java_dev_tfexport_Translator_openMemory(JNIEnv* env, jclass, jobject zip, jbyteArray session) {
    tfexport_translator* translator = nullptr;
    const void* memory = env->GetDirectBufferAddress(zip);
    const auto size = static_cast<std::size_t>(env->GetDirectBufferCapacity(zip));
    const auto status = tfexport_open_memory(memory, size, Text(env, session).get(), &translator);
    if (status != TFEXPORT_OK) raise(env, status);
    return reinterpret_cast<jlong>(translator);
}

JNIEXPORT jobjectArray JNICALL Java_dev_tfexport_Translator_translate(JNIEnv* env, jclass, jlong handle,
                                                                      jobjectArray texts, jbyteArray options) {
    std::vector<Text> sources;
    for (jsize i = 0; i < env->GetArrayLength(texts); ++i) {
        const auto text = static_cast<jbyteArray>(env->GetObjectArrayElement(texts, i));
        sources.emplace_back(env, text);
        env->DeleteLocalRef(text);
    }
    std::vector<const char*> pointers;
    for (const Text& source : sources) pointers.push_back(source.get());
    tfexport_result* result = nullptr;
    const auto status = tfexport_translate(translator_of(handle), pointers.data(), nullptr, pointers.size(),
                                           Text(env, options).get(), nullptr, nullptr, nullptr, &result);
    if (status != TFEXPORT_OK) {
        raise(env, status);
        return nullptr;
    }
    const jobjectArray all = best_texts(env, result);
    tfexport_result_free(result);
    return all;
}

JNIEXPORT void JNICALL Java_dev_tfexport_Translator_close(JNIEnv*, jclass, jlong handle) {
    tfexport_close(translator_of(handle));
}

}  // extern "C"
