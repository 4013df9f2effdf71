/** The file system of expo-file-system as the runtime wants it. Another package needs other three lines. */

import type { DeviceFiles } from "@tfexport/runtime/react-native";

/** The part of `expo-file-system` (or `expo-file-system/legacy`) that is used. */
export interface ExpoFileSystem {
  readDirectoryAsync(folder: string): Promise<string[]>;
  getInfoAsync(path: string): Promise<{ exists: boolean; size?: number }>;
  readAsStringAsync(path: string, options: { encoding: "base64" }): Promise<string>;
}

export function expoFiles(system: ExpoFileSystem): DeviceFiles {
  return {
    list: (folder) => system.readDirectoryAsync(folder),
    size: async (path) => (await system.getInfoAsync(path)).size ?? 0,
    readBase64: (path) => system.readAsStringAsync(path, { encoding: "base64" }),
  };
}
