// What a page and the emulator's worker share: the core's records, as bytes. Python
// (worklog.emulator.portable) says where their fields are.

function bytesOf(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place++) {
        bytes[place] = text.charCodeAt(place);
    }
    return bytes;
}

// Returns a field of a record: a number, a BigInt if a number can't represent it, or a list.
function fieldOf(record, buffer, start, field) {
    const [offset, type, count] = record.fields[field];
    const view = new DataView(buffer, start + offset);
    const read = (place) => {
        if (type.endsWith("4")) {
            return type === "i4" ? view.getInt32(4 * place, true) : view.getUint32(4 * place, true);
        }
        const value = type === "i8"
            ? view.getBigInt64(8 * place, true)
            : view.getBigUint64(8 * place, true);
        return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    };
    return count === 1 ? read(0) : Array.from({ length: count }, (_, place) => read(place));
}

// Returns records, such as events or the steps of a trace, each as an object.
function decoded(bytes, record) {
    const fields = Object.keys(record.fields);
    const out = [];
    for (let start = 0; start < bytes.length; start += record.size) {
        const at = bytes.byteOffset + start;
        const read = (field) => [field, fieldOf(record, bytes.buffer, at, field)];
        out.push(Object.fromEntries(fields.map(read)));
    }
    return out;
}
