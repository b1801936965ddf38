/** Length classes, distinguished by shape and color. */

/** Shapes centered at 0 with a width of 11 pixels. */
export const SHAPES = [
  <circle r="5" />,
  <rect x="-4.5" y="-4.5" width="9" height="9" />,
  <path d="M0 -5.5l5.5 10h-11z" />,
  <path d="M0 -6l6 6-6 6-6-6z" />,
];

export function ClassMark({ index }: { index: number }) {
  return (
    <svg viewBox="-6 -6 12 12" class="class-mark" aria-hidden="true" fill={`var(--series-${index + 1})`}>
      {SHAPES[index]}
    </svg>
  );
}
