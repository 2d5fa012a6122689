import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools in one JVM, one after the other: its start takes longer than most tools do.
 *
 * On standard input come, for each tool, how many words there are, the words (its class first) and what it is to read;
 * on standard output go its exit code, what it printed, and what it complained of. Sizes are four bytes, before each.
 * Words before the class are system properties, -Dname=value.
 * A tool finds its own classes as new as in a JVM of its own: what they keep in static fields is not there twice.
 */
public class Tools {
    private static final List<String> ANEW = List.of("org.apache.kafka.tools.", "kafka.");

    public static void main(String[] none) throws Exception {
        DataInputStream asked = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            String[] words;
            try {
                words = new String[asked.readInt()];
            } catch (EOFException nobodyAsksAnyMore) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int each = 0; each < words.length; each++) words[each] = new String(read(asked), StandardCharsets.UTF_8);
            ByteArrayOutputStream printed = new ByteArrayOutputStream(), complaints = new ByteArrayOutputStream();
            int code = run(words, new ByteArrayInputStream(read(asked)), printed, complaints);
            answers.writeInt(code);
            write(answers, printed.toByteArray());
            write(answers, complaints.toByteArray());
            answers.flush();
        }
    }

    private static int run(String[] words, InputStream given, ByteArrayOutputStream out, ByteArrayOutputStream err)
            throws Exception {
        System.setIn(given);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        Exit.Procedure end = (code, message) -> {
            ended.complete(code);
            while (true) LockSupport.park(); // who ends the JVM does not return from there
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Thread thread = new Thread(() -> ended.complete(call(words)), "main");
        thread.setDaemon(true);
        thread.setContextClassLoader(new Anew());
        thread.start();
        int code = ended.get();
        for (Runnable hook : hooks) hook.run();
        System.out.flush();
        System.err.flush();
        return code;
    }

    private static int call(String[] words) {
        try {
            int at = 0;
            for (; words[at].startsWith("-D"); at++) {
                String[] property = words[at].substring(2).split("=", 2);
                System.setProperty(property[0], property[1]);
            }
            Class<?> tool = Class.forName(words[at], true, Thread.currentThread().getContextClassLoader());
            String[] arguments = List.of(words).subList(at + 1, words.length).toArray(new String[0]);
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            System.err.print("Exception in thread \"main\" ");
            thrown.getCause().printStackTrace();
        } catch (ReflectiveOperationException problem) {
            problem.printStackTrace();
        }
        return 1;
    }

    private static byte[] read(DataInputStream from) throws IOException {
        return from.readNBytes(from.readInt());
    }

    private static void write(DataOutputStream to, byte[] bytes) throws IOException {
        to.writeInt(bytes.length);
        to.write(bytes);
    }

    /** Classes of the tools are loaded for each run of one, all others once. */
    private static class Anew extends URLClassLoader {
        Anew() throws Exception {
            super(jars(), Tools.class.getClassLoader());
        }

        private static URL[] jars() throws Exception {
            List<URL> found = new CopyOnWriteArrayList<>();
            for (String path : System.getProperty("java.class.path").split(File.pathSeparator))
                if (new File(path).getName().startsWith("kafka")) found.add(new File(path).toURI().toURL());
            return found.toArray(new URL[0]);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> known = findLoadedClass(name);
                if (known != null) return known;
                return ANEW.stream().anyMatch(name::startsWith) ? findClass(name) : super.loadClass(name, resolve);
            }
        }
    }
}
