/* The C interface of the tfexport runtime, for every language that can call C.
 *
 * All text is UTF-8 and ends with a zero byte. No exception leaves this interface, nothing is printed, nothing exits.
 *
 * Status: every function that can fail returns a tfexport_status; what went wrong is then in tfexport_last_error().
 * Ownership: what a function gives out through a pointer to a pointer belongs to the caller, who frees it with the
 *   function that is named there. Every `const char*` and array that is returned belongs to the object that it was
 * asked of, and is valid as long as that object. Threads: a translator may be used by any number of threads at once,
 * but closed only when no call uses it. A result belongs to one thread at a time. A cancel flag may be used by all
 * threads.
 */
#ifndef TFEXPORT_TFEXPORT_H
#define TFEXPORT_TFEXPORT_H

#include <stddef.h>
#include <stdint.h>

#include "tfexport/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tfexport_status {
    TFEXPORT_OK = 0,
    TFEXPORT_INTERNAL = 1,   /* the model or the engine failed, or there is not enough memory */
    TFEXPORT_OPTION = 2,     /* options that contradict each other or the bundle */
    TFEXPORT_INPUT = 4,      /* a bundle or a text that cannot be used */
    TFEXPORT_UNAVAILABLE = 5 /* a library that is not there or too old */
} tfexport_status;

typedef enum tfexport_finish {
    TFEXPORT_FINISH_EOS = 0,
    TFEXPORT_FINISH_LENGTH = 1,
    TFEXPORT_FINISH_CANCELLED = 2
} tfexport_finish;

typedef struct tfexport_translator tfexport_translator;
typedef struct tfexport_result tfexport_result;
typedef struct tfexport_states tfexport_states;
typedef struct tfexport_cancel tfexport_cancel;

/* Called after every step of every sentence, in the thread that called tfexport_translate. `ids` are those of the best
 * hypothesis so far, valid during the call only. Returns non-zero to end the sentence. Must not throw or jump out. */
typedef int (*tfexport_progress)(void* user, size_t text, size_t sample, const int64_t* ids, size_t count,
                                 double score);

/* Version of this library. Any thread. The text is static. */
TFEXPORT_API const char* tfexport_version(void);

/* What went wrong in the last failed call of this thread; one line. Never NULL.
 * Any thread; valid until the next failing call of the same thread. */
TFEXPORT_API const char* tfexport_last_error(void);

/* Opens the folder or the zip of a bundle.
 * session: NULL, or a JSON object with any of {"threads": 0, "parallel_batches": 1, "provider": "cpu",
 * "spinning": true, "prepacking": true, "arena": true, "large_pages": true, "verify": true}; what they mean is said at
 * SessionOptions in options.h. *translator: the caller's, freed by tfexport_close; NULL after a failure. Any thread. */
TFEXPORT_API tfexport_status tfexport_open(const char* path, const char* session, tfexport_translator** translator);

/* The same for a zip in memory. The memory stays the caller's, must not change, and must outlive the translator.
 * Any thread. */
TFEXPORT_API tfexport_status tfexport_open_memory(const void* zip, size_t size, const char* session,
                                                  tfexport_translator** translator);

/* Frees a translator; NULL is fine. Any thread, when no other call uses it any more. */
TFEXPORT_API void tfexport_close(tfexport_translator* translator);

/* Translates `count` texts.
 * prefixes: NULL, or `count` beginnings of the targets.
 * options: NULL, or a JSON object such as {"beam_size": 4}, laid over the default options of the bundle. With
 *   "attention": true among them hypotheses also tell what their tokens looked at; of a bundle exported with it.
 * cancel: NULL, or a flag that ends the call early from another thread; what is there by then is returned.
 * progress, user: NULL, or a function and what it is called with.
 * The arguments stay the caller's and are not used after the call.
 * *result: the caller's, freed by tfexport_result_free; NULL after a failure. Any thread, several at once. */
TFEXPORT_API tfexport_status tfexport_translate(const tfexport_translator* translator, const char* const* texts,
                                                const char* const* prefixes, size_t count, const char* options,
                                                const tfexport_cancel* cancel, tfexport_progress progress, void* user,
                                                tfexport_result** result);

/* How many texts were translated, and how many hypotheses there are of one: at least 1; 0 for a text out of range. */
TFEXPORT_API size_t tfexport_result_texts(const tfexport_result* result);
TFEXPORT_API size_t tfexport_result_hypotheses(const tfexport_result* result, size_t text);

/* Parts of a hypothesis; 0 is the best one. NULL, NaN or 0 for one that is out of range.
 * The pointers belong to the result. `count` is set to the number of items behind the pointer. */
TFEXPORT_API const char* tfexport_result_text(const tfexport_result* result, size_t text, size_t hypothesis);
TFEXPORT_API double tfexport_result_score(const tfexport_result* result, size_t text, size_t hypothesis);
TFEXPORT_API tfexport_finish tfexport_result_finish(const tfexport_result* result, size_t text, size_t hypothesis);
TFEXPORT_API const int64_t* tfexport_result_ids(const tfexport_result* result, size_t text, size_t hypothesis,
                                                size_t* count);
TFEXPORT_API const float* tfexport_result_token_scores(const tfexport_result* result, size_t text, size_t hypothesis,
                                                       size_t* count);
/* The written form of one of the ids; NULL out of range. */
TFEXPORT_API const char* tfexport_result_token(const tfexport_result* result, size_t text, size_t hypothesis,
                                               size_t position);
/* What the tokens of a hypothesis looked at, where the options said "attention": true. `output` counts the outputs that
 * tell it, from 0 and in the order of their names, such as "cross_attention". The weights are shape[0] tokens (those of
 * tfexport_result_token_scores) of shape[1] heads of shape[2] source ids: weight s of head h of token t is at
 * [(t * shape[1] + h) * shape[2] + s]. shape: NULL, or room for three sizes. NULL and sizes of 0 out of range, and for
 * an empty text. */
TFEXPORT_API const char* tfexport_result_attention_name(const tfexport_result* result, size_t text, size_t hypothesis,
                                                        size_t output);
TFEXPORT_API const float* tfexport_result_attention(const tfexport_result* result, size_t text, size_t hypothesis,
                                                    size_t output, size_t shape[3]);
/* What was done to the source text, such as "was cut from 80 to 60 tokens"; "" mostly, NULL out of range. */
TFEXPORT_API const char* tfexport_result_warning(const tfexport_result* result, size_t text);

/* Frees a result and all that it gave out; NULL is fine. */
TFEXPORT_API void tfexport_result_free(tfexport_result* result);

/* The encoder's last hidden states of `count` texts; of a bundle exported with them.
 * The arguments stay the caller's and are not used after the call.
 * *states: the caller's, freed by tfexport_states_free; NULL after a failure. Any thread, several at once. */
TFEXPORT_API tfexport_status tfexport_encoder_states(const tfexport_translator* translator, const char* const* texts,
                                                     size_t count, tfexport_states** states);

/* How many texts there are, and the states of one: shape[0] source ids of shape[1] numbers each, one behind the other;
 * shape[0] is 0 for an empty text. shape: NULL, or room for two sizes. NULL and sizes of 0 out of range. The pointer
 * belongs to the states. */
TFEXPORT_API size_t tfexport_states_texts(const tfexport_states* states);
TFEXPORT_API const float* tfexport_states_of(const tfexport_states* states, size_t text, size_t shape[2]);

/* Frees states and all that they gave out; NULL is fine. */
TFEXPORT_API void tfexport_states_free(tfexport_states* states);

/* A flag that ends calls of tfexport_translate. *cancel: the caller's, freed by tfexport_cancel_free when no call uses
 * it any more. tfexport_cancel_set: any thread, at any time; it stays set. */
TFEXPORT_API tfexport_status tfexport_cancel_new(tfexport_cancel** cancel);
TFEXPORT_API void tfexport_cancel_set(tfexport_cancel* cancel);
TFEXPORT_API void tfexport_cancel_free(tfexport_cancel* cancel);

/* Runs the golden file of the bundle on this device. *differences: how many were found, 0 if all is well; the first of
 * them is then in tfexport_last_error(), though the status is TFEXPORT_OK. Any thread, several at once. */
TFEXPORT_API tfexport_status tfexport_self_test(const tfexport_translator* translator, size_t* differences);

#ifdef __cplusplus
}
#endif

#endif
