/** Errors of the runtime: each message is one line that says what to do. */

/** Base of every error that a user can mend. */
export class TfexportError extends Error {
  override name = "TfexportError";
}

/** A bundle that is missing, damaged, too new, or not a bundle. */
export class BundleError extends TfexportError {
  override name = "BundleError";
}

/** Options that contradict each other or the bundle. */
export class OptionError extends TfexportError {
  override name = "OptionError";
}

/**
 * Text that cannot be translated as it is. Where one text of a list is at fault, `index` is its place in the list and
 * `problem` is the message without it.
 */
export class InputError extends TfexportError {
  override name = "InputError";

  constructor(
    readonly problem: string,
    readonly index?: number,
  ) {
    super(index === undefined ? problem : `text ${index + 1} ${problem}`);
  }
}

/** Something that this browser, device or installation does not have. */
export class UnavailableError extends TfexportError {
  override name = "UnavailableError";
}

/** The model gave something that is not a number. */
export class ModelOutputError extends TfexportError {
  override name = "ModelOutputError";
}

/** A text that was cut because the caller allowed it. */
export interface TruncationWarning {
  readonly index: number;
  readonly problem: string;
}
