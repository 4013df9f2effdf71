// A bundle, ready to translate, straight over the C interface (module.modulemap, put beside the folder tfexport/).
import CTfexport
import Foundation

public struct TranslationError: Error, CustomStringConvertible {
    public let status: UInt32
    public let description: String

    init(_ status: tfexport_status) {
        self.status = UInt32(status.rawValue)
        description = String(cString: tfexport_last_error())
    }
}

/// Safe to share between threads.
public final class Translator {
    private var handle: OpaquePointer?

    /// Opens the folder or the zip of a bundle. session: JSON such as {"threads": 2, "spinning": false}.
    public init(path: String, session: String? = nil) throws {
        let status = tfexport_open(path, session, &handle)
        guard status == TFEXPORT_OK else { throw TranslationError(status) }
    }

    deinit { tfexport_close(handle) }

    /// The best translation of each text. options: JSON such as {"beam_size": 4}; nil for those of the bundle.
    public func translate(_ texts: [String], options: String? = nil) throws -> [String] {
        let sources = texts.map { strdup($0) }
        defer { sources.forEach { free($0) } }
        var pointers = sources.map { UnsafePointer<CChar>($0) }
        var result: OpaquePointer?
        let status = tfexport_translate(handle, &pointers, nil, texts.count, options, nil, nil, nil, &result)
        guard status == TFEXPORT_OK else { throw TranslationError(status) }
        defer { tfexport_result_free(result) }
        return (0..<tfexport_result_texts(result)).map { String(cString: tfexport_result_text(result, $0, 0)) }
    }
}
