// A bundle, ready to translate; for Objective-C and, through a bridging header, Swift.
#import <Foundation/Foundation.h>

/// Safe to share between threads.
@interface TFXTranslator : NSObject

/// Opens the folder or the zip of a bundle. session: JSON such as {"threads": 2, "spinning": false}, or nil.
/// Returns nil and sets the error if it cannot be used.
- (instancetype)initWithPath:(NSString *)path session:(NSString *)session error:(NSError **)error;

/// The best translation of each text, or nil. options: JSON such as {"beam_size": 4}, or nil for those of the bundle.
- (NSArray *)translate:(NSArray *)texts options:(NSString *)options error:(NSError **)error;

@end
