package dev.tfexport;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** A bundle, ready to translate; for Java and Kotlin. Safe to share between threads until it is closed. */
public final class Translator implements AutoCloseable {
    static {
        System.loadLibrary("tfexport_jni");
    }

    private long handle;
    private final ByteBuffer memory; // what the library reads must stay as long as it does

    /** Opens the folder or the zip of a bundle. session: JSON such as {"threads": 2, "spinning": false}, or null. */
    public Translator(String path, String session) {
        memory = null;
        handle = open(bytes(path), bytes(session));
    }

    /** Opens a zip in a direct buffer, such as a mapped asset. */
    public Translator(ByteBuffer zip, String session) {
        memory = zip;
        handle = openMemory(zip, bytes(session));
    }

    /** The best translation of each text. options: JSON such as {"beam_size": 4}, or null for those of the bundle. */
    public String[] translate(String[] texts, String options) {
        byte[][] sources = new byte[texts.length][];
        for (int i = 0; i < texts.length; i++) sources[i] = bytes(texts[i]);
        byte[][] translated = translate(handle, sources, bytes(options));
        String[] all = new String[translated.length];
        for (int i = 0; i < all.length; i++) all[i] = new String(translated[i], StandardCharsets.UTF_8);
        return all;
    }

    /** Frees the model. Nothing may be translating any more. */
    @Override
    public void close() {
        close(handle);
        handle = 0;
    }

    // Zero-ended UTF-8: what JNI calls UTF-8 is another encoding.
    private static byte[] bytes(String text) {
        return text == null ? null : (text + "\0").getBytes(StandardCharsets.UTF_8);
    }

    private static native long open(byte[] path, byte[] session);

    private static native long openMemory(ByteBuffer zip, byte[] session);

    private static native byte[][] translate(long handle, byte[][] texts, byte[] options);

    private static native void close(long handle);
}
