/** Dialog for the format of a saved picture: PNG with double resolution, or SVG. */

import { Button } from "./button";
import { showError } from "./toast";
import { Dialog } from "./dialog";
import { pictureToSave } from "./picture";
import { savePicture, type Format } from "./picture-export";

const FORMATS: readonly (readonly [Format, string])[] = [
  ["png", "PNG at twice the size"],
  ["svg", "SVG, sharp at any size"],
];

export function SaveDialog() {
  const savable = pictureToSave.value;
  if (!savable) return null;
  const close = () => (pictureToSave.value = undefined);
  const save = (format: Format) => {
    close();
    savePicture(savable.name, savable.picture, format).catch((error: unknown) =>
      showError("The picture could not be saved", error),
    );
  };
  return (
    <Dialog title="Save picture" onClose={close}>
      <p class="soft">{savable.picture.title}, with its title and a description above.</p>
      <div class="stack">
        {FORMATS.map(([format, text]) => (
          <Button key={format} onClick={() => save(format)}>
            {text}
          </Button>
        ))}
      </div>
    </Dialog>
  );
}
