// What Avro's own Java library makes of schemas. Each line of the input is a reader's and a writer's schema in base64.
// Each line of the output has the kinds of incompatibility, sorted, and the reader's canonical text; or ERROR.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.stream.Collectors;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

public class AvroByJava {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.append(answer(line.split(" "))).append('\n');
        }
        System.out.print(output);
    }

    private static String answer(String[] texts) {
        try {
            Schema reader = parse(texts[0]);
            Schema writer = parse(texts[1]);
            String kinds = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult()
                .getIncompatibilities().stream().map(found -> found.getType().name()).distinct().sorted()
                .collect(Collectors.joining(","));
            return kinds + "\t" + reader;
        } catch (RuntimeException failure) {
            return "ERROR";
        }
    }

    private static Schema parse(String text) {
        String json = new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
        return new Schema.Parser(NameValidator.STRICT_VALIDATOR).setValidateDefaults(true).parse(json);
    }
}
