#import "TFXTranslator.h"

#include <tfexport/tfexport.h>

#include <vector>

static NSError *lastError(tfexport_status status) {
    NSString *message = [NSString stringWithUTF8String:tfexport_last_error()];
    return [NSError errorWithDomain:@"dev.tfexport"
                               code:status
                           userInfo:[NSDictionary dictionaryWithObject:message forKey:NSLocalizedDescriptionKey]];
}

@implementation TFXTranslator {
    tfexport_translator *_translator;
}

- (instancetype)initWithPath:(NSString *)path session:(NSString *)session error:(NSError **)error {
    self = [super init];
    if (self == nil) return nil;
    const tfexport_status status = tfexport_open([path UTF8String], [session UTF8String], &_translator);
    if (status == TFEXPORT_OK) return self;
    if (error != NULL) *error = lastError(status);
    return nil;
}

- (NSArray *)translate:(NSArray *)texts options:(NSString *)options error:(NSError **)error {
    std::vector<const char *> sources;
    for (NSString *text in texts) sources.push_back([text UTF8String]);
    tfexport_result *result = NULL;
    const tfexport_status status = tfexport_translate(_translator, sources.data(), NULL, sources.size(),
                                                      [options UTF8String], NULL, NULL, NULL, &result);
    if (status != TFEXPORT_OK) {
        if (error != NULL) *error = lastError(status);
        return nil;
    }
    NSMutableArray *all = [NSMutableArray arrayWithCapacity:[texts count]];
    for (size_t i = 0; i < tfexport_result_texts(result); ++i) {
        [all addObject:[NSString stringWithUTF8String:tfexport_result_text(result, i, 0)]];
    }
    tfexport_result_free(result);
    return all;
}

- (void)dealloc {
    tfexport_close(_translator);
}

@end
