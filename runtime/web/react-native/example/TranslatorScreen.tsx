/** One screen: text in, translation out, while the user types. `folder` is where the app has put the bundle. */

import { loadTranslator, type DeviceFiles, type Translation, type Translator } from "@tfexport/runtime/react-native";
import * as ort from "onnxruntime-react-native";
import React, { useEffect, useState } from "react";
import { ActivityIndicator, SafeAreaView, ScrollView, StyleSheet, Text, TextInput, View } from "react-native";

interface Props {
  readonly folder: string;
  readonly files: DeviceFiles;
}

const PAUSE_MS = 300; // without a key before the translation starts

export function TranslatorScreen({ folder, files }: Props): React.JSX.Element {
  const [problem, setProblem] = useState("");
  const translator = useTranslator(folder, files, setProblem);
  const [text, setText] = useState("");
  const { translation, working } = useTranslation(translator, text, setProblem);
  return (
    <SafeAreaView style={styles.screen}>
      <TextInput
        style={styles.input}
        value={text}
        onChangeText={setText}
        editable={translator !== null}
        multiline
        placeholder={translator === null ? "Loading the model …" : "Type a sentence"}
        accessibilityLabel="Text to translate"
      />
      {(working || translator === null) && problem === "" && <ActivityIndicator accessibilityLabel="Working" />}
      <ScrollView accessibilityLiveRegion="polite">
        {problem !== "" && <Text style={styles.problem}>{problem}</Text>}
        {translation?.hypotheses.map(({ text: written, score }, i) => (
          <View key={i} style={styles.row}>
            <Text style={i === 0 ? styles.best : styles.other}>{written}</Text>
            <Text style={styles.score}>{score.toFixed(3)}</Text>
          </View>
        ))}
      </ScrollView>
    </SafeAreaView>
  );
}

/** Loads the bundle once, and frees the engine when the screen goes away. */
function useTranslator(folder: string, files: DeviceFiles, tell: (problem: string) => void): Translator | null {
  const [translator, setTranslator] = useState<Translator | null>(null);
  useEffect(() => {
    let gone = false;
    const loaded = loadTranslator(folder, ort, files);
    loaded.then((ready) => !gone && setTranslator(ready), (error: unknown) => tell(messageOf(error)));
    return () => {
      gone = true;
      void loaded.then((ready) => ready.release(), () => undefined);
    };
  }, [folder, files, tell]);
  return translator;
}

/** The translation of the newest text; what is outdated is cancelled. */
function useTranslation(translator: Translator | null, text: string, tell: (problem: string) => void) {
  const [translation, setTranslation] = useState<Translation | null>(null);
  const [working, setWorking] = useState(false);
  useEffect(() => {
    if (translator === null) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      setWorking(true);
      translator
        .translate([text], { beam_size: 4, n_best: 3, truncate_source: true, signal: abort.signal })
        .then(
          ([first]) => {
            setTranslation(first ?? null);
            tell("");
          },
          (error: unknown) => abort.signal.aborted || tell(messageOf(error)),
        )
        .finally(() => !abort.signal.aborted && setWorking(false));
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [translator, text, tell]);
  return { translation, working };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const styles = StyleSheet.create({
  screen: { flex: 1, padding: 16, gap: 12 },
  input: { minHeight: 120, borderWidth: 1, borderColor: "#c8ccd8", borderRadius: 12, padding: 12, fontSize: 18 },
  row: { flexDirection: "row", gap: 12, paddingVertical: 8 },
  best: { flex: 1, fontSize: 18 },
  other: { flex: 1, fontSize: 16, color: "#5a6072" },
  score: { color: "#5a6072", fontVariant: ["tabular-nums"] },
  problem: { color: "#b42318" },
});
