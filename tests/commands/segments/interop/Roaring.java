import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import org.roaringbitmap.IntIterator;
import org.roaringbitmap.RoaringBitmap;
import org.roaringbitmap.longlong.LongIterator;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/**
 * Makes and lists bitmaps with the Java library: Roaring (make|list) (32|64) FROM TO, again and again.
 *
 * <p>make: from a file of numbers, one a line, to a bitmap. list: from a bitmap to a file of numbers.
 */
class Roaring {
    public static void main(String[] args) throws Exception {
        for (int at = 0; at < args.length; at += 4) {
            Path from = Path.of(args[at + 2]);
            Path to = Path.of(args[at + 3]);
            boolean wide = args[at + 1].equals("64");
            if (args[at].equals("make")) {
                try (var out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(to)))) {
                    make(wide, from, out);
                }
            } else {
                try (var in = new DataInputStream(new BufferedInputStream(Files.newInputStream(from)));
                        var out = new PrintWriter(Files.newBufferedWriter(to))) {
                    list(wide, in, out);
                    if (in.read() != -1) {
                        throw new IllegalStateException(from + " has bytes after its bitmap");
                    }
                }
            }
        }
    }

    private static void make(boolean wide, Path from, DataOutputStream out) throws Exception {
        if (wide) {
            // Unsigned, so that numbers above 2^63 are in their order.
            var bitmap = new Roaring64NavigableMap(false);
            Files.lines(from).forEach(number -> bitmap.addLong(Long.parseUnsignedLong(number)));
            // Segments are made by subtraction, which leaves parts without members.
            var others = new Roaring64NavigableMap(false);
            for (long part = 5; part < 8; part++) {
                others.addLong(part << 32);
            }
            bitmap.or(others);
            bitmap.andNot(others);
            bitmap.runOptimize();
            bitmap.serializePortable(out);
        } else {
            var bitmap = new RoaringBitmap();
            Files.lines(from).forEach(number -> bitmap.add(Integer.parseUnsignedInt(number)));
            var others = RoaringBitmap.bitmapOf(1 << 28);
            bitmap.or(others);
            bitmap.andNot(others);
            bitmap.runOptimize();
            bitmap.serialize(out);
        }
    }

    private static void list(boolean wide, DataInputStream in, PrintWriter out) throws Exception {
        if (wide) {
            var bitmap = new Roaring64NavigableMap(false);
            bitmap.deserializePortable(in);
            for (LongIterator each = bitmap.getLongIterator(); each.hasNext(); ) {
                out.println(Long.toUnsignedString(each.next()));
            }
        } else {
            var bitmap = new RoaringBitmap();
            bitmap.deserialize(in);
            for (IntIterator each = bitmap.getIntIterator(); each.hasNext(); ) {
                out.println(Integer.toUnsignedString(each.next()));
            }
        }
    }
}
