import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;

/** The delays of ../delays.tsv. */
class AdmissionTest {
    public static void main(String[] args) throws Exception {
        var rows = Files.readAllLines(Path.of(args.length > 0 ? args[0] : "../delays.tsv"));
        for (var row : rows.subList(1, rows.size())) {
            var cells = row.split("\t");
            var after = cells[1].equals("-") ? null : Duration.ofSeconds(Long.parseLong(cells[1]));
            var found = Admission.delay(Integer.parseInt(cells[0]), Optional.ofNullable(after), Double.parseDouble(cells[2]));
            if (found.toMillis() != Math.round(Double.parseDouble(cells[3]) * 1000)) {
                throw new AssertionError(row + ": " + found);
            }
        }
        System.out.println(rows.size() - 1 + " delays");
    }
}
