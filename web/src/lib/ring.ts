/** Ring buffer of the newest values with a fixed size. */
export class Ring<T> {
  private readonly items: (T | undefined)[];
  private first = 0;
  length = 0;

  constructor(readonly capacity: number) {
    if (!(capacity >= 1)) throw new RangeError(`a ring holds at least 1; got ${capacity}`);
    this.items = new Array<T | undefined>(capacity);
  }

  push(item: T): void {
    this.items[(this.first + this.length) % this.capacity] = item;
    if (this.length < this.capacity) this.length += 1;
    else this.first = (this.first + 1) % this.capacity;
  }

  /** Return the item at an index; 0 is the oldest, -1 the newest. */
  at(index: number): T | undefined {
    const from = index < 0 ? this.length + index : index;
    return from >= 0 && from < this.length ? this.items[(this.first + from) % this.capacity] : undefined;
  }

  clear(): void {
    this.items.fill(undefined);
    this.first = this.length = 0;
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let index = 0; index < this.length; index += 1) yield this.at(index) as T;
  }

  /** Return all items, oldest first. */
  toArray(): T[] {
    return [...this];
  }
}
