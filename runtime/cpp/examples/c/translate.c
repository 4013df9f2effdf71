/* translate BUNDLE TEXT [OPTIONS]: one text through the C interface, for example
 *   translate bundle/ "Ein Hund." '{"beam_size": 4}' */
#include <stdio.h>
#include <tfexport/tfexport.h>

static int fail(void) {
    fprintf(stderr, "%s\n", tfexport_last_error());
    return 1;
}

int main(int argc, char** argv) {
    tfexport_translator* translator = NULL;
    tfexport_result* result = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: %s BUNDLE TEXT [OPTIONS]\n", argv[0]);
        return 2;
    }
    if (tfexport_open(argv[1], NULL, &translator) != TFEXPORT_OK) return fail();

    const char* texts[] = {argv[2]};
    const char* options = argc > 3 ? argv[3] : NULL;
    if (tfexport_translate(translator, texts, NULL, 1, options, NULL, NULL, NULL, &result) != TFEXPORT_OK) {
        tfexport_close(translator);
        return fail();
    }
    printf("%s\t%.4f\n", tfexport_result_text(result, 0, 0), tfexport_result_score(result, 0, 0));

    tfexport_result_free(result);
    tfexport_close(translator);
    return 0;
}
